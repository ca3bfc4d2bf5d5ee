"""What the console takes at most, of browsers and of brokers."""

from __future__ import annotations

from typing import Final

# Of browsers.
SESSIONS_MAX: Final = 64
SESSION_AGE_S: Final = 12 * 3_600.0
"""From its login; a page that is open asks again and again, so only this ends it."""
SESSION_IDLE_S: Final = 30 * 60.0
"""Since the last request: nobody has a page open."""
LOGINS_AT_ONCE: Final = 4
"""Each waits for a broker; others are told to try again."""
FORM_BYTES_MAX: Final = 2 * 1_048_576
FORM_FIELDS_MAX: Final = 64
CONNECTIONS_MAX: Final = 256
"""Of browsers, idle ones too."""
REQUEST_HEAD_BYTES_MAX: Final = 32_768
KEEP_ALIVE_S: Final = 15

# Of what is asked of brokers.
ASK_S: Final = 10.0
"""For each answer of a broker."""
SHARE: Final = 0.005
"""Of a broker's time each kind of looking takes at most: what took 50 ms is asked again after 10 s."""
TABLE_PAUSE_S: Final = 2.0
TABLE_PAUSE_MAX_S: Final = 120.0
"""Between two readings of a table, for all who look at it."""
SAMPLE_PAUSE_S: Final = 2.0
SAMPLES_MAX: Final = 450
"""15 minutes, where the broker answers fast."""
WATCHED_S: Final = 15 * 60.0
"""So long after the last look samples are still taken."""
ENTITY_HISTORIES_MAX: Final = 64
ENTITY_SAMPLES_MAX: Final = 150

# Of pages.
ROWS: Final = 50
ROWS_MAX: Final = 500
FILTER_CHARACTERS_MAX: Final = 200
MESSAGES_SHOWN: Final = 50
MESSAGES_SHOWN_MAX: Final = 200
BODY_PREVIEW_BYTES: Final = 120
HEX_BYTES: Final = 4_096
EVENTS_SHOWN: Final = 100
EVENTS_COUNTED: Final = 1_000
ACT_S: Final = 20.0
"""A purge, move or re-drive goes on so long; what is left then is told."""

assert ROWS <= ROWS_MAX and MESSAGES_SHOWN <= MESSAGES_SHOWN_MAX
assert EVENTS_SHOWN <= EVENTS_COUNTED
assert SESSION_IDLE_S < SESSION_AGE_S
assert TABLE_PAUSE_S < TABLE_PAUSE_MAX_S < SESSION_IDLE_S

"""What is asked of brokers at most, and how often."""

from __future__ import annotations

from typing import Final

ASK_S: Final = 10.0
"""For each answer of a broker."""
PROVED_S: Final = 30.0
"""So long it holds that a user may look, before the broker is asked again: tables are shared."""
PAGES_AT_ONCE: Final = 8
"""Of one broker, for all: a broker that hangs holds so many threads, and no other broker's."""
PAGES_OF_LOGIN: Final = 3
PLACE_WAIT_S: Final = 2.0
"""For a place among these, or for what another page does with the same login or table."""
FAILURE_SLOW_S: Final = 1.0
FAILURE_HELD_S: Final = 3.0
"""A broker that did not answer for a second is not asked again for three."""
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

ROWS: Final = 50
ROWS_MAX: Final = 500
FILTER_CHARACTERS_MAX: Final = 200
"""As a broker takes them in `contains`."""

assert ROWS <= ROWS_MAX
assert PAGES_OF_LOGIN < PAGES_AT_ONCE
assert PLACE_WAIT_S < ASK_S
assert TABLE_PAUSE_S < TABLE_PAUSE_MAX_S

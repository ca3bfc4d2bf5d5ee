"""What the console takes of browsers at most; what it asks of brokers: `amqp_broker/looking/limits.py`."""

from __future__ import annotations

from typing import Final

from amqp_broker.looking.limits import TABLE_PAUSE_MAX_S

# Of browsers.
SESSIONS_MAX: Final = 64
SESSION_AGE_S: Final = 12 * 3_600.0
"""From its login; a page that is open asks again and again, so only this ends it."""
SESSION_IDLE_S: Final = 30 * 60.0
"""Since the last request: nobody has a page open."""
LOGINS_AT_ONCE: Final = 16
LOGINS_OF_ADDRESS: Final = 4
"""Each waits for a broker; others are told to try again. Behind a proxy all come from one address."""
FORM_BYTES_MAX: Final = 2 * 1_048_576
LOGIN_FORM_BYTES_MAX: Final = 8 * 1_024
"""Of forms that nobody has to be logged in for."""
FORM_S: Final = 20.0
"""So long the body of a form may take to come."""
FORM_PARSED_AT_ONCE_BYTES: Final = 65_536
"""A larger one is parsed in a thread."""
FORM_FIELDS_MAX: Final = 64
CONNECTIONS_MAX: Final = 256
"""Of browsers, idle ones too."""
REQUEST_HEAD_BYTES_MAX: Final = 32_768
KEEP_ALIVE_S: Final = 15

# Of pages.
MESSAGES_SHOWN: Final = 50
MESSAGES_SHOWN_MAX: Final = 200
BODY_PREVIEW_BYTES: Final = 120
BODY_SHOWN_BYTES: Final = 1_048_576
"""Of one message's page, as much as READ-MESSAGE tells; it is saved whole."""
READ_CREDIT: Final = 4
READ_BYTES_MAX: Final = 32 * 1_048_576
"""Of one page that is read by offset: a message that goes beyond it is the last one."""
HEX_BYTES: Final = 4_096
EVENTS_SHOWN: Final = 100
EVENTS_COUNTED: Final = 1_000
ACT_S: Final = 20.0
"""A purge, move or re-drive goes on so long; what is left then is told."""

assert MESSAGES_SHOWN <= MESSAGES_SHOWN_MAX
assert EVENTS_SHOWN <= EVENTS_COUNTED
assert BODY_PREVIEW_BYTES <= BODY_SHOWN_BYTES <= READ_BYTES_MAX
assert LOGIN_FORM_BYTES_MAX <= FORM_PARSED_AT_ONCE_BYTES < FORM_BYTES_MAX
assert LOGINS_OF_ADDRESS < LOGINS_AT_ONCE
assert TABLE_PAUSE_MAX_S < SESSION_IDLE_S < SESSION_AGE_S

"""Every limit of the broker, with its unit in the name and the reason for its default.

The names of the constants are the names of the fields in capitals; relations between neighbours are asserted
at the end of the module for the defaults and checked in `BrokerLimits` for what a user sets.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from amqp_broker.configuration_fields import ConfigurationError, shown, whole_number

KIB: Final = 1_024
MIB: Final = 1_024 * KIB
GIB: Final = 1_024 * MIB
UINT_MAX: Final = 2**32 - 1
HOUR_MS: Final = 3_600_000

# Before login: a stranger may hold little, and only for a short time.
LOGIN_TIMEOUT_MS: Final = (
    10_000  # absolute, from accept to open: slow networks need three round trips and a PBKDF2
)
HEADER_TIMEOUT_MS: Final = 2_000  # a client sends its eight bytes at once; who does not is a scanner
TLS_TIMEOUT_MS: Final = 5_000  # a handshake is two round trips and one signature
LOGIN_BUFFER_BYTES: Final = (
    16 * KIB
)  # one open of 8 KiB and the SASL frames of the longest mechanism fit twice
LOGIN_FRAMES: Final = 8  # init, two responses and open are four; pipelining clients stay below eight
LOGIN_SOCKETS: Final = 512  # with LOGIN_BUFFER_BYTES this bounds strangers to 8 MiB
LOGIN_SOCKETS_PER_ADDRESS: Final = 32  # one host cannot take all places
LOGIN_FAILURE_DELAY_MS: Final = (
    1_000  # guessing is slowed to one word a second and socket; an honest typo waits a second
)

# Frames: checked before the body is waited for.
OPEN_FRAME_SIZE_BYTES: Final = 8 * KIB  # open carries names and capabilities, never a body
MAX_FRAME_SIZE_BYTES: Final = 64 * KIB  # one read of the socket; larger frames only delay other sessions

# Messages.
MAX_MESSAGE_SIZE_BYTES: Final = 16 * MIB  # announced in attach; larger things belong into an object store
PARTIAL_DELIVERIES_BYTES: Final = 256 * MIB  # sixteen senders in the midst of the largest message
ANNOTATIONS_BYTES: Final = 64 * KIB  # message-annotations as consumers may make them: dozens of tries' worth
PARTIAL_IDLE_MS: Final = (
    60_000  # a delivery that makes no progress for so long is given up, its link detached
)
PARTIAL_TOTAL_MS: Final = 600_000  # and one that lasts for so long: the largest at 28 kB a second

# Memory in all.
MEMORY_BYTES: Final = 0  # half of what the machine, or the control group of the process, has
MEMORY_BYTES_MIN: Final = MIB  # less would be used up by a few connections
MEMORY_WAIT_MS: Final = 2_000  # how long what came waits for room before it is refused: consumers need time

# One connection.
MAX_CONNECTIONS: Final = 16_384  # 10,000 idle connections at 64 KiB each, and room above
MAX_SESSIONS: Final = 1_024  # JMS makes one session for each thread, and pools of them share a connection
MAX_LINKS_PER_SESSION: Final = 4_096  # one consumer and one producer for each of 2,048 queues
MAX_LINKS_PER_CONNECTION: Final = 16_384  # about 64 MiB: full tables of both would fit no memory
CONTROL_OPERATIONS_PER_S: Final = 2_000  # begin, attach, detach, end: beyond it a connection is read slower
CONTROL_OPERATIONS_BURST: Final = 8_000  # a reconnecting client restores all its links at once
ADDRESS_OPERATIONS_PER_S: Final = 4_000  # the same of all connections from one address, and their opens
ADDRESS_OPERATIONS_BURST: Final = 32_000  # a host with a few programs that all come back at once
OUTCOME_WAIT_MS: Final = 2_000  # a detach, end or close is answered behind the outcomes of what came before
OUTPUT_BUFFER_BYTES: Final = 256 * KIB  # four full frames; beyond it queues are not asked for more
WRITE_STALL_TIMEOUT_MS: Final = 60_000  # a peer that reads nothing for so long gets its deliveries taken back
IDLE_CREDIT_MS: Final = 5_000  # unused credit for a full queue, while others wait: asked back after so long
LINK_CREDIT: Final = 2_048  # what a sending client may have under way: as many as may be unsettled

# Idle.
IDLE_TIME_OUT_MS: Final = 30_000  # announced; half a minute keeps most NAT tables alive
MIN_PEER_IDLE_TIME_OUT_MS: Final = 1_000  # below it a peer makes us send empty frames for a living

# Unsettled deliveries.
MAX_UNSETTLED_PER_LINK: Final = 2_048  # as LINK_CREDIT
MAX_UNSETTLED_PER_SESSION: Final = 5_000  # the peer's disposition may cost a walk over these

# Transactions.
MAX_TRANSACTIONS: Final = 64  # live ones of a connection: a controller works on a few at a time
TRANSACTION_TIMEOUT_MS: Final = 120_000  # from the declare; what a transaction holds is free again then
TRANSACTION_OPERATIONS: Final = 10_000  # what one discharge puts into one store commit
TRANSACTION_BYTES: Final = 64 * MIB  # messages that only the transaction keeps in memory

# Half messages.
HALF_ASKS_PER_S: Final = 500  # checks: a flood of due ones leaves the broker to its other work

HALF_KEEP_BYTES: Final = GIB  # bodies of what policy rolled back, for inspection; 0 for no bound

MAX_HALF_SETS: Final = 10_000  # parts of sets at once, one for each destination of each: hidden nodes
HALF_SET_DESTINATIONS: Final = 64  # of one set: a task writes to a few addresses
HALF_SET_BYTES: Final = 4 * GIB  # staged on disk and not decided, in all: beyond it senders get no credit
HALF_SET_WAIT_MS: Final = 30_000  # without room for so long a link is detached: who waits may be the cause

EVENT_KEEP_BYTES: Final = 0  # without bound, as `retention_bytes`: time is what readers can plan with
EVENT_KEEP_MS: Final = 7 * 24 * HOUR_MS  # the event log: a week to read what happened to half messages

MAX_HALF_GROUPS: Final = 1_024  # at once; idle ones that peers made by using them are forgotten

# Sequences.
MAX_STREAMS: Final = 10_000_000  # rows of about 200 bytes on disk, for ever: a shop has one for each till
MAX_TEMPORARY_STREAMS: Final = 1_024  # of a queue that no store knows: its streams are in memory only

# Nodes.
ADDRESS_BYTES: Final = 255  # also what a file system and a str8 take, although no address becomes a path
MAX_NODES: Final = 100_000  # queues on first use must not be a way to fill memory
QUEUE_WINDOW_MESSAGES: Final = 8_192  # messages of one queue in memory, the rest is on disk
QUEUE_WINDOW_BYTES: Final = 16 * MIB  # and their bytes: at least one message of the largest size

# Reading by offset.
RETAINED_PAGE_MESSAGES: Final = 1_024  # what a reader takes from the store at once
RETAINED_PAGE_BYTES: Final = 256 * KIB  # and their bytes, at least one message: as OUTPUT_BUFFER_BYTES
RETAINED_READ_SHARE_PERCENT: Final = 15  # of the broker's time, for all readers, while others store
MAX_RETAINED_READERS: Final = 1_024  # links: each may have a page in memory
CURSOR_NAME_BYTES: Final = 255  # as ADDRESS_BYTES: a key of the store that stands in each row
MAX_CURSORS: Final = 10_000  # names: durable until somebody forgets them

# Logs.
LOG_FIELD_CHARACTERS: Final = 256  # a peer must not write our log
LOG_LINES_PER_MINUTE: Final = 60  # of one kind, by one peer: beyond it they are a count

# Stopping.
STOP_GRACE_MS: Final = 5_000  # a clean stop: closes are sent and answered, then sockets are cut


MESSAGES_IN_MEMORY: Final = 4
"""Of the largest size: a message that needs more than a quarter of the memory would hold everybody up."""


def _limit(default: int, low: int, high: int, unit: str) -> Any:
    """A field that holds one limit."""
    return attrs.field(default=default, validator=whole_number(low, high, unit))


@attrs.frozen(kw_only=True)
class BrokerLimits:
    """The `[limits]` table: all bounds that a peer can run into.  Defaults and reasons stand beside the
    constants.
    """

    login_timeout_ms: int = _limit(LOGIN_TIMEOUT_MS, 100, HOUR_MS, "milliseconds")
    header_timeout_ms: int = _limit(HEADER_TIMEOUT_MS, 50, HOUR_MS, "milliseconds")
    tls_timeout_ms: int = _limit(TLS_TIMEOUT_MS, 50, HOUR_MS, "milliseconds")
    login_buffer_bytes: int = _limit(LOGIN_BUFFER_BYTES, 8 * KIB, MIB, "bytes")
    login_frames: int = _limit(LOGIN_FRAMES, 4, 1_024, "frames")
    login_sockets: int = _limit(LOGIN_SOCKETS, 1, 65_536, "sockets")
    login_sockets_per_address: int = _limit(LOGIN_SOCKETS_PER_ADDRESS, 1, 65_536, "sockets")
    login_failure_delay_ms: int = _limit(LOGIN_FAILURE_DELAY_MS, 0, 60_000, "milliseconds")

    open_frame_size_bytes: int = _limit(OPEN_FRAME_SIZE_BYTES, 512, MIB, "bytes")
    max_frame_size_bytes: int = _limit(MAX_FRAME_SIZE_BYTES, 512, 16 * MIB, "bytes")

    max_message_size_bytes: int = _limit(MAX_MESSAGE_SIZE_BYTES, 1_024, 2 * GIB - 1, "bytes")
    partial_deliveries_bytes: int = _limit(PARTIAL_DELIVERIES_BYTES, 64 * KIB, 64 * GIB, "bytes")
    annotations_bytes: int = _limit(ANNOTATIONS_BYTES, 256, MIB, "bytes")
    partial_idle_ms: int = _limit(PARTIAL_IDLE_MS, 100, HOUR_MS, "milliseconds")
    partial_total_ms: int = _limit(PARTIAL_TOTAL_MS, 100, 24 * HOUR_MS, "milliseconds")

    memory_bytes: int = _limit(MEMORY_BYTES, 0, 1 << 50, "bytes, 0 for half of the machine's")
    memory_wait_ms: int = _limit(MEMORY_WAIT_MS, 0, HOUR_MS, "milliseconds")

    max_connections: int = _limit(MAX_CONNECTIONS, 1, 1_000_000, "connections")
    max_sessions: int = _limit(MAX_SESSIONS, 1, 65_536, "sessions")
    max_links_per_session: int = _limit(MAX_LINKS_PER_SESSION, 1, 65_536, "links")
    max_links_per_connection: int = _limit(MAX_LINKS_PER_CONNECTION, 1, 10_000_000, "links")
    control_operations_per_s: int = _limit(CONTROL_OPERATIONS_PER_S, 1, 1_000_000, "operations a second")
    control_operations_burst: int = _limit(CONTROL_OPERATIONS_BURST, 1, 1_000_000, "operations")
    address_operations_per_s: int = _limit(ADDRESS_OPERATIONS_PER_S, 1, 1_000_000, "operations a second")
    address_operations_burst: int = _limit(ADDRESS_OPERATIONS_BURST, 1, 10_000_000, "operations")
    outcome_wait_ms: int = _limit(OUTCOME_WAIT_MS, 0, HOUR_MS, "milliseconds")
    output_buffer_bytes: int = _limit(OUTPUT_BUFFER_BYTES, 4 * KIB, GIB, "bytes")
    write_stall_timeout_ms: int = _limit(WRITE_STALL_TIMEOUT_MS, 100, HOUR_MS, "milliseconds")
    idle_credit_ms: int = _limit(IDLE_CREDIT_MS, 100, HOUR_MS, "milliseconds")
    link_credit: int = _limit(LINK_CREDIT, 1, 1_000_000, "messages")

    idle_time_out_ms: int = _limit(IDLE_TIME_OUT_MS, 100, UINT_MAX, "milliseconds")
    min_peer_idle_time_out_ms: int = _limit(MIN_PEER_IDLE_TIME_OUT_MS, 1, UINT_MAX, "milliseconds")

    max_unsettled_per_link: int = _limit(MAX_UNSETTLED_PER_LINK, 1, 1_000_000, "deliveries")
    max_unsettled_per_session: int = _limit(MAX_UNSETTLED_PER_SESSION, 1, 10_000_000, "deliveries")

    max_transactions: int = _limit(MAX_TRANSACTIONS, 1, 65_536, "transactions")
    transaction_timeout_ms: int = _limit(TRANSACTION_TIMEOUT_MS, 100, HOUR_MS, "milliseconds")
    transaction_operations: int = _limit(TRANSACTION_OPERATIONS, 1, 10_000_000, "operations")
    transaction_bytes: int = _limit(TRANSACTION_BYTES, 1_024, 64 * GIB, "bytes")

    event_keep_bytes: int = _limit(EVENT_KEEP_BYTES, 0, 1 << 50, "bytes")
    event_keep_ms: int = _limit(EVENT_KEEP_MS, 1_000, 10 * 365 * 24 * HOUR_MS, "milliseconds")
    max_half_sets: int = _limit(MAX_HALF_SETS, 1, 1_000_000, "parts of sets")
    half_set_destinations: int = _limit(HALF_SET_DESTINATIONS, 1, 10_000, "destinations")
    half_set_bytes: int = _limit(HALF_SET_BYTES, 64 * KIB, 1 << 50, "bytes")
    half_set_wait_ms: int = _limit(HALF_SET_WAIT_MS, 100, HOUR_MS, "milliseconds")
    half_keep_bytes: int = _limit(HALF_KEEP_BYTES, 0, 1 << 50, "bytes, 0 for no bound")
    half_asks_per_s: int = _limit(HALF_ASKS_PER_S, 1, 1_000_000, "checks a second")

    max_half_groups: int = _limit(MAX_HALF_GROUPS, 1, 1_000_000, "groups")

    max_streams: int = _limit(MAX_STREAMS, 1, 1 << 40, "streams")
    max_temporary_streams: int = _limit(MAX_TEMPORARY_STREAMS, 1, 1_000_000, "streams")

    address_bytes: int = _limit(ADDRESS_BYTES, 1, ADDRESS_BYTES, "bytes")
    max_nodes: int = _limit(MAX_NODES, 1, 10_000_000, "nodes")
    queue_window_messages: int = _limit(QUEUE_WINDOW_MESSAGES, 1, 10_000_000, "messages")
    queue_window_bytes: int = _limit(QUEUE_WINDOW_BYTES, 64 * KIB, 64 * GIB, "bytes")

    retained_page_messages: int = _limit(RETAINED_PAGE_MESSAGES, 1, 1_000_000, "messages")
    retained_page_bytes: int = _limit(RETAINED_PAGE_BYTES, 4 * KIB, GIB, "bytes")
    retained_read_share_percent: int = _limit(RETAINED_READ_SHARE_PERCENT, 1, 100, "percent")
    max_retained_readers: int = _limit(MAX_RETAINED_READERS, 1, 1_000_000, "links")
    cursor_name_bytes: int = _limit(CURSOR_NAME_BYTES, 1, CURSOR_NAME_BYTES, "bytes")
    max_cursors: int = _limit(MAX_CURSORS, 1, 10_000_000, "cursors")

    log_field_characters: int = _limit(LOG_FIELD_CHARACTERS, 16, 65_536, "characters")
    log_lines_per_minute: int = _limit(LOG_LINES_PER_MINUTE, 1, 1_000_000, "lines a minute")
    stop_grace_ms: int = _limit(STOP_GRACE_MS, 0, HOUR_MS, "milliseconds")

    def __attrs_post_init__(self) -> None:
        for lower, higher in RELATIONS:
            low, high = getattr(self, lower), getattr(self, higher)
            if low > high:
                raise ConfigurationError(lower, shown(low), f"must be at most {higher}, which is {high}")
        least = max(MEMORY_BYTES_MIN, MESSAGES_IN_MEMORY * self.max_message_size_bytes)
        if 0 < self.memory_bytes < least:
            allowed = (
                f"must be 0 or at least {least}: {MESSAGES_IN_MEMORY} times max_message_size_bytes, and "
                f"{MEMORY_BYTES_MIN}"
            )
            raise ConfigurationError("memory_bytes", shown(self.memory_bytes), allowed)


RELATIONS: Final = (
    ("header_timeout_ms", "login_timeout_ms"),
    ("tls_timeout_ms", "login_timeout_ms"),
    ("login_failure_delay_ms", "login_timeout_ms"),
    ("login_sockets_per_address", "login_sockets"),
    ("open_frame_size_bytes", "login_buffer_bytes"),
    ("max_message_size_bytes", "partial_deliveries_bytes"),
    ("partial_idle_ms", "partial_total_ms"),
    ("max_frame_size_bytes", "output_buffer_bytes"),
    ("max_unsettled_per_link", "max_unsettled_per_session"),
    ("max_links_per_session", "max_links_per_connection"),
    ("control_operations_per_s", "address_operations_per_s"),
    ("control_operations_burst", "address_operations_burst"),
    ("max_message_size_bytes", "transaction_bytes"),
)
"""(lower, higher): the first never exceeds the second, or one of the two could not be reached."""

BrokerLimits()  # the defaults keep the relations, or nothing imports

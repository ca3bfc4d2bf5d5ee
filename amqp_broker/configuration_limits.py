"""Every limit of the broker: default, lowest and highest value, unit, and what it is good for.

Each is one line of `BrokerLimits`; relations between neighbours stand behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

from amqp_broker.configuration_fields import Problem, Table, setting, shown, whole_number

KIB: Final = 1_024
MIB: Final = 1_024 * KIB
GIB: Final = 1_024 * MIB
PIB: Final = 1_024 * 1_024 * GIB
UINT_MAX: Final = 2**32 - 1
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
NAME_BYTES: Final = 255  # what a file system and a str8 take, although no name becomes a path
MEMORY_BYTES_MIN: Final = MIB  # less would be used up by a few connections
MESSAGES_IN_MEMORY: Final = 4
"""Of the largest size: a message that needs more than a quarter of the memory would hold everybody up."""


def _limit(default: int, low: int, high: int, unit: str, meaning: str) -> Any:
    """A field that holds one limit."""
    return setting(default, whole_number(low, high, unit), meaning)


def _ms(default: int, low: int, high: int, meaning: str) -> Any:
    return _limit(default, low, high, "milliseconds", meaning)


def _bytes(default: int, low: int, high: int, meaning: str) -> Any:
    return _limit(default, low, high, "bytes", meaning)


@attrs.frozen(kw_only=True)
class BrokerLimits(Table):
    """The `[limits]` table: all bounds that a peer can run into."""

    # Before login: a stranger may hold little, and only for a short time.
    login_timeout_ms: int = _ms(
        10_000, 100, HOUR_MS, "from accept to open: slow networks need three round trips and a PBKDF2")
    header_timeout_ms: int = _ms(
        2_000, 50, HOUR_MS, "to the protocol header: who does not send eight bytes at once is a scanner")
    tls_timeout_ms: int = _ms(
        5_000, 50, HOUR_MS, "for the TLS handshake: two round trips and one signature")
    websocket_timeout_ms: int = _ms(
        5_000, 50, HOUR_MS, "for the handshake of a WebSocket: one request and one answer, as tls_timeout_ms")
    websocket_header_bytes: int = _bytes(
        16 * KIB, 512, MIB, "of its request: browsers send a kilobyte, and their cookies")
    websocket_message_bytes: int = _bytes(
        MIB, 16 * KIB, 256 * MIB, "of one message in it: clients put a frame or a few into one")
    login_buffer_bytes: int = _bytes(
        16 * KIB, 8 * KIB, MIB, "buffered: an open of 8 KiB and the longest mechanism's frames fit twice")
    login_frames: int = _limit(
        8, 4, 1_024, "frames", "before open: init, two responses and open are four, pipelining needs more")
    login_sockets: int = _limit(
        512, 1, 65_536, "sockets", "not logged in: with login_buffer_bytes they hold 8 MiB")
    login_sockets_per_address: int = _limit(
        32, 1, 65_536, "sockets", "not logged in, from one address: one host cannot take all places")
    token_bytes: int = _bytes(
        8 * KIB, 512, MIB, "of a SASL frame where tokens are taken, for which the standard's 512 are too few")
    login_failure_delay_ms: int = _ms(
        1_000, 0, 60_000, "before a refusal: guessing is slowed to one word a second and socket")

    # Frames: checked before the body is waited for.
    open_frame_size_bytes: int = _bytes(
        8 * KIB, 512, MIB, "of a frame before open, which carries names and capabilities, never a body")
    max_frame_size_bytes: int = _bytes(
        64 * KIB, 512, 16 * MIB, "of a frame: one read of the socket; larger ones only delay other sessions")

    # Messages.
    max_message_size_bytes: int = _bytes(
        16 * MIB, 1_024, 2 * GIB - 1, "announced in attach; larger things belong into an object store")
    partial_deliveries_bytes: int = _bytes(
        256 * MIB, 64 * KIB, 64 * GIB, "of incomplete deliveries in all: sixteen of the largest message")
    stream_body_bytes: int = _bytes(
        MIB, 0, 2 * GIB - 1,
        "a durable message that is larger passes from its sender to its file, and from there to its "
        "receiver, without being in memory; 0: none does")
    spool_bytes: int = _bytes(
        GIB, 64 * KIB, 1024 * GIB,
        "of such messages on their way to the disk, in all, each counted as the largest that may come; "
        "others wait in memory, and where it is less than max_message_size_bytes all do")
    annotations_bytes: int = _bytes(
        64 * KIB, 256, MIB, "of message-annotations as consumers may make them: dozens of tries' worth")
    partial_idle_ms: int = _ms(
        60_000, 100, HOUR_MS, "a delivery without progress for so long is given up, its link detached")
    partial_total_ms: int = _ms(
        600_000, 100, DAY_MS, "a delivery may last for so long: the largest at 28 kB a second")

    # Memory in all.
    memory_bytes: int = _limit(
        0, 0, PIB, "bytes, 0 for half of the machine's",
        "what peers send or leave in memory; the machine's is that of the process's control group, too")
    memory_wait_ms: int = _ms(
        2_000, 0, HOUR_MS, "how long what came waits for room before it is refused: consumers need time")

    # One connection.
    max_connections: int = _limit(
        16_384, 1, 1_000_000, "connections", "10,000 idle connections at 64 KiB each, and room above")
    max_sessions: int = _limit(
        1_024, 1, 65_536, "sessions", "of a connection: pools of JMS share one, with a session each thread")
    max_links_per_session: int = _limit(
        4_096, 1, 65_536, "links", "one consumer and one producer for each of 2,048 queues")
    max_links_per_connection: int = _limit(
        16_384, 1, 10_000_000, "links", "about 64 MiB: full tables of sessions and links fit no memory")
    control_operations_per_s: int = _limit(
        2_000, 1, 1_000_000, "operations a second",
        "begin, attach, detach, end: beyond it a connection is read slower")
    control_operations_burst: int = _limit(
        8_000, 1, 1_000_000, "operations", "at once: a reconnecting client restores all its links")
    address_operations_per_s: int = _limit(
        4_000, 1, 1_000_000, "operations a second",
        "as control_operations_per_s, of all connections from one address, and their opens")
    address_operations_burst: int = _limit(
        32_000, 1, 10_000_000, "operations", "at once: a host with a few programs that all come back")
    outcome_wait_ms: int = _ms(
        2_000, 0, HOUR_MS, "for which a detach, end or close waits for the outcomes of what came before")
    output_buffer_bytes: int = _bytes(
        256 * KIB, 4 * KIB, GIB, "four full frames; beyond it queues are not asked for more")
    write_stall_timeout_ms: int = _ms(
        60_000, 100, HOUR_MS, "a peer that reads nothing for so long gets its deliveries taken back")
    idle_credit_ms: int = _ms(
        5_000, 100, HOUR_MS, "unused credit for a full queue, while others wait, is asked back after so long")
    link_credit: int = _limit(
        2_048, 1, 1_000_000, "messages", "a sending client may have under way, as max_unsettled_per_link")

    # Idle.
    idle_time_out_ms: int = _ms(
        30_000, 100, UINT_MAX, "announced: half a minute keeps most NAT tables alive")
    min_peer_idle_time_out_ms: int = _ms(
        1_000, 1, UINT_MAX, "below it a peer makes us send empty frames for a living")

    # Unsettled deliveries.
    max_unsettled_per_link: int = _limit(2_048, 1, 1_000_000, "deliveries", "as link_credit")
    max_unsettled_per_session: int = _limit(
        5_000, 1, 10_000_000, "deliveries", "the peer's disposition may cost a walk over these")

    # Links that are resumed.
    max_lasting_termini: int = _limit(
        4_096, 0, 1_000_000, "termini", "that outlive their links: ten of each of 400 clients")
    lasting_terminus_s: int = _limit(
        3_600, 1, 7 * 86_400, "seconds",
        "a terminus waits for its link at most: nobody else gets the messages that it holds")
    terminus_name_bytes: int = _bytes(
        KIB, 1, 64 * KIB, "of container-id and name of a link whose terminus is durable: in the store")

    # Transactions.
    max_transactions: int = _limit(
        64, 1, 65_536, "transactions", "live in a connection: a controller works on a few at a time")
    transaction_timeout_ms: int = _ms(
        120_000, 100, HOUR_MS, "from the declare; what a transaction holds is free again then")
    transaction_operations: int = _limit(
        10_000, 1, 10_000_000, "operations", "that one discharge puts into one store commit")
    transaction_bytes: int = _bytes(
        64 * MIB, 1_024, 64 * GIB, "of messages that only the transaction keeps in memory")

    # The disk.
    large_body_bytes: int = _limit(
        4 * KIB, 0, GIB, "bytes, 0 for none",
        "a durable message from here on may lie in a file beside the database: smaller ones gain nothing")

    # Half messages, and sets of them.
    event_keep_bytes: int = _limit(
        0, 0, PIB, "bytes, 0 for no bound",
        "of the journal; by default none: time is what readers can plan with")
    event_keep_ms: int = _ms(
        7 * DAY_MS, 1_000, 10 * 365 * DAY_MS, "of the journal: a week to read what happened")
    max_half_sets: int = _limit(
        10_000, 1, 1_000_000, "parts of sets", "at once, one for each destination of each: hidden nodes")
    half_set_destinations: int = _limit(
        64, 1, 10_000, "destinations", "of one set: a task writes to a few addresses")
    half_set_bytes: int = _bytes(
        4 * GIB, 64 * KIB, PIB, "staged on disk and not decided, in all: beyond it senders get no credit")
    half_set_wait_ms: int = _ms(
        30_000, 100, HOUR_MS, "without room for so long a link is detached: who waits may be the cause")
    half_keep_bytes: int = _limit(
        GIB, 0, PIB, "bytes, 0 for no bound", "bodies of what policy rolled back, for inspection")
    half_asks_per_s: int = _limit(
        500, 1, 1_000_000, "checks a second", "a flood of due ones leaves the broker to its other work")
    max_half_groups: int = _limit(
        1_024, 1, 1_000_000, "groups", "at once; idle ones that peers made by using them are forgotten")

    # Sequences.
    max_streams: int = _limit(
        10_000_000, 1, 1 << 40, "streams",
        "rows of about 200 bytes on disk, for ever: a shop has one for each till")
    max_temporary_streams: int = _limit(
        1_024, 1, 1_000_000, "streams", "of a queue that no store knows: its streams are in memory only")

    # Nodes.
    address_bytes: int = _bytes(NAME_BYTES, 1, NAME_BYTES, "of an address")
    max_nodes: int = _limit(
        100_000, 1, 10_000_000, "nodes", "queues on first use must not be a way to fill memory")
    max_subscriptions: int = _limit(
        100_000, 1, 10_000_000, "subscriptions", "of all topics: each is a queue, and counts as a node, too")
    max_subscriptions_per_topic: int = _limit(
        10_000, 1, 10_000_000, "subscriptions", "of one topic or pattern: a message is copied to each")
    subscription_name_bytes: int = _bytes(
        NAME_BYTES, 1, NAME_BYTES, "of the name of a subscription that is kept or shared")
    dead_letter_messages: int = _limit(
        1_000_000, 1, 2**48, "messages",
        "in the queue dead-letters, if its [[queue]] has no bound: then its oldest are dropped")
    dead_letter_bytes: int = _bytes(
        GIB, 64 * KIB, PIB, "in it: beyond it the oldest are dropped, too, one by one")
    queue_window_messages: int = _limit(
        8_192, 1, 10_000_000, "messages", "of one queue in memory, the rest is on disk")
    queue_window_bytes: int = _bytes(
        16 * MIB, 64 * KIB, 64 * GIB, "of one queue in memory: at least one message of the largest size")

    # Reading by offset.
    retained_page_messages: int = _limit(
        1_024, 1, 1_000_000, "messages", "that a reader takes from the store at once")
    retained_page_bytes: int = _bytes(
        256 * KIB, 4 * KIB, GIB, "of them, at least one message: as output_buffer_bytes")
    retained_read_share_percent: int = _limit(
        15, 1, 100, "percent", "of the broker's time, for all readers, while others store")
    max_retained_readers: int = _limit(1_024, 1, 1_000_000, "links", "each may have a page in memory")
    cursor_name_bytes: int = _bytes(
        NAME_BYTES, 1, NAME_BYTES, "of a cursor's name: a key of the store that stands in each row")
    max_cursors: int = _limit(
        10_000, 1, 10_000_000, "cursors", "names: durable until somebody forgets them")

    # Health and metrics over HTTP.
    http_connections: int = _limit(
        16, 1, 1_024, "connections", "at once: a few programs that scrape and probe; one more is closed")
    http_request_bytes: int = _bytes(
        8 * KIB, 512, MIB, "of a request: its line and its headers, and a body that nobody wants")
    http_timeout_ms: int = _ms(
        5_000, 100, HOUR_MS, "for a request, for the next one on its connection, and for an answer")
    metrics_interval_ms: int = _ms(
        1_000, 0, HOUR_MS, "who asks sooner gets the figures of before: scrapers share what they cost")
    metrics_labels: int = _limit(
        250, 0, 100_000, "names", "of queues that metrics tell apart, and of cursors; all are in the sums")

    # Backups of a running broker.
    backup_share_percent: int = _limit(
        20, 1, 100, "percent", "of the writer's time that a backup takes, a piece of 2 MiB at a time")
    max_backups_listed: int = _limit(
        100, 1, 10_000, "backups", "that were asked for since the start: beyond it the oldest are not told")

    # The program's log.
    log_field_characters: int = _limit(
        256, 16, 65_536, "characters", "of a field in a log event: a peer must not write our log")
    log_lines_per_minute: int = _limit(
        60, 1, 1_000_000, "lines a minute", "of one kind, by one peer: beyond it they are a count")

    # Stopping.
    stop_grace_ms: int = _ms(
        5_000, 0, HOUR_MS, "of a clean stop: closes are sent and answered, then sockets are cut")

    def contradictions(self) -> Iterator[Problem]:
        """Limits that cannot be reached because of their neighbours, and too little memory."""
        yield from self._not_above(*RELATIONS)
        least = max(MEMORY_BYTES_MIN, MESSAGES_IN_MEMORY * self.max_message_size_bytes)
        if 0 < self.memory_bytes < least:
            allowed = (
                f"must be 0 or at least {least}: {MESSAGES_IN_MEMORY} times max_message_size_bytes, and "
                f"{MEMORY_BYTES_MIN}"
            )
            yield Problem("memory_bytes", shown(self.memory_bytes), allowed)


RELATIONS: Final = (
    ("header_timeout_ms", "login_timeout_ms"),
    ("tls_timeout_ms", "login_timeout_ms"),
    ("websocket_timeout_ms", "login_timeout_ms"),
    ("login_failure_delay_ms", "login_timeout_ms"),
    ("login_sockets_per_address", "login_sockets"),
    ("open_frame_size_bytes", "login_buffer_bytes"),
    ("token_bytes", "login_buffer_bytes"),
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

DEFAULT_LIMITS: Final = BrokerLimits()  # the defaults keep the relations, or nothing imports

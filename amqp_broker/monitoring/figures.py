"""The metrics, as a table: each is an attribute of what `$management` tells, by another name.

There is one source of figures: what is counted is counted where it happens, named in the tables of
`amqp_broker.management`, and read here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"

OF_ONE: Final = "of one"
"""The attribute of the one entity there is."""
OF_EACH: Final = "of each"
"""The attribute of each entity, up to limits.metrics_labels, by the name of its type."""
COUNTED: Final = "counted"
"""How many entities have each value of the attribute."""
OF_KEYS: Final = "of keys"
"""The attribute is a map: the value at each key, of each entity, up to limits.metrics_labels."""
OF_MAP: Final = "of map"
"""The attribute of the one entity there is is a map: the value at each key, which are few."""
LATEST: Final = "latest"
"""The highest value of the attribute among entities whose state is `done`."""

MS: Final = 0.001


class Figure(NamedTuple):
    """One metric, of the attribute of a type of entities."""

    metric: str
    kind: str
    type: str
    attribute: str
    meaning: str
    how: str = OF_ONE
    labels: tuple[str, ...] = ()
    scale: float = 1


def _of_broker(kind: str, *told: tuple[str, str, str]) -> list[Figure]:
    return [
        Figure(f"amqp_{metric}", kind, "broker", attribute, meaning) for metric, attribute, meaning in told
    ]


def _of_queue(kind: str, *told: tuple[str, str, str], scale: float = 1) -> list[Figure]:
    return [
        Figure(f"amqp_queue_{metric}", kind, "queue", attribute, meaning, OF_EACH, ("queue",), scale)
        for metric, attribute, meaning in told
    ]


FIGURES: Final = (
    *_of_broker(
        GAUGE,
        ("connections", "connections", "Open connections."),
        ("queues", "queues", "Queues that have an address."),
        ("messages", "messages", "Messages in all queues."),
        ("message_bytes", "bytes", "Octets of the bodies of these."),
        ("transactions", "transactions", "Transactions that are not over."),
        ("memory_used_bytes", "memory_used_bytes", "What peers sent or left in memory, in octets."),
        ("memory_limit_bytes", "memory_limit_bytes", "What they may use (limits.memory_bytes)."),
        ("memory_cache_bytes", "memory_cache_bytes", "Of these: copies of messages that are on disk, too."),
        ("memory_own_bytes", "memory_own_bytes", "Of these: what the broker itself keeps."),
        ("memory_waiting_connections", "memory_pressed", "Connections that wait for memory."),
        ("disk_free_bytes", "disk_free_bytes", "Room on the disk of the store, in octets."),
        ("disk_refusing", "disk_refusing", "1 while new messages are refused since the disk is nearly full."),
    ),
    *_of_broker(
        COUNTER,
        ("messages_arrived", "arrived", "Messages that came into queues."),
        ("messages_sent", "sent", "Messages that were sent to receivers, each time."),
        ("messages_accepted", "accepted", "Messages that receivers accepted, or were sent settled."),
        ("messages_returned", "returned", "Messages that came back: released, modified, a lost link."),
        ("messages_rejected", "rejected", "Messages that receivers rejected."),
        ("messages_failed", "failed", "Messages that were tried too often."),
        ("messages_undeliverable", "undeliverable", "Messages that no receiver wanted."),
        ("messages_expired", "expired", "Messages that expired."),
        ("messages_removed", "removed", "Messages that were purged, moved, dropped, or deleted."),
        ("messages_dead_lettered", "dead_letters", "Messages that went to a queue of dead letters."),
    ),
    *_of_queue(
        GAUGE,
        ("messages", "messages", "Messages in the queue."),
        ("bytes", "bytes", "Octets of their bodies."),
        ("available", "available", "Messages of it that no receiver holds."),
        ("consumers", "consumers", "Links that receive from it."),
        ("senders", "senders", "Links that send to it."),
        ("full", "full", "1 while it takes no more."),
    ),
    *_of_queue(
        GAUGE,
        ("oldest_age_seconds", "oldest_age_ms", "Age of the first available message, where it is in memory."),
        scale=MS,
    ),
    *_of_queue(
        COUNTER,
        ("arrived", "arrived", "Messages that came into it."),
        ("sent", "sent", "Messages that were sent to receivers, each time."),
        ("accepted", "accepted", "Messages that receivers accepted, or were sent settled."),
        ("returned", "returned", "Messages that came back."),
        ("expired", "expired", "Messages that expired."),
        ("dead_lettered", "dead_letters", "Messages that went to dead letters."),
        ("dropped", "dropped", "Messages that a ring put out."),
        ("duplicates", "duplicates", "Messages that were there before."),
    ),
    Figure("amqp_refusals", COUNTER, "broker", "refusals", "What was refused, closed or slowed down, by the "
           "setting that was met, or else what kind of error was told.", OF_MAP, ("limit",)),
    Figure("amqp_trace_spans", COUNTER, "broker", "trace_spans", "Spans, by what became of them.", OF_MAP,
           ("fate",)),
    Figure("amqp_transactions_by_state", GAUGE, "transaction", "state", "Transactions that are not over.",
           COUNTED, ("state",)),
    Figure("amqp_half_messages", GAUGE, "half", "state", "Half messages that are not decided, at most "
           "10,000 of each group.", COUNTED, ("state",)),
    Figure("amqp_half_sets", GAUGE, "set", "state", "Sets of half messages that are not decided.",
           COUNTED, ("state",)),
    Figure("amqp_cursor_lag", GAUGE, "cursor", "lags", "Offsets between a durable cursor and the end.",
           OF_KEYS, ("cursor", "address")),
    Figure("amqp_backup_last_success_seconds", GAUGE, "backup", "ended_at_ms", "When the last backup since "
           "the start was complete, in seconds since the epoch; 0: none was.", LATEST, (), MS),
)  # fmt: skip

STREAMS: Final = Figure("amqp_sequenced_streams", GAUGE, "", "", "Sequenced streams in the store.")
COMMIT_SECONDS: Final = Figure(
    "amqp_commit_seconds", HISTOGRAM, "", "", "How long commits took, with their syncs."
)
COMMIT_OPERATIONS: Final = Figure(
    "amqp_commit_operations", HISTOGRAM, "", "", "How many operations shared a commit."
)
MESSAGE_AGE: Final = Figure(
    "amqp_message_age_seconds", HISTOGRAM, "", "", "How old messages were when they were sent, each time."
)
NOT_TOLD: Final = Figure("amqp_queues_not_told_apart", GAUGE, "", "", "Queues that are in the sums only.")
SCRAPE_SECONDS: Final = Figure(
    "amqp_scrape_seconds",
    GAUGE,
    "",
    "",
    "How long the broker's loop worked while the figures before were read.",
)

ALL: Final = (*FIGURES, STREAMS, COMMIT_SECONDS, COMMIT_OPERATIONS, MESSAGE_AGE, NOT_TOLD, SCRAPE_SECONDS)

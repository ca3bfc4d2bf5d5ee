"""The events of the broker's log as rows of the archive: their columns, their types, and what each means.

On the wire an event is a message of `$events`: its subject is the type, its body a map of the fields that it
has (docs/protocols/retention.md). In the archive each event is a row of EVENT_COLUMNS; a field that it has
not is null.
"""

from __future__ import annotations

from typing import Final

EVENT_COLUMNS: Final[tuple[tuple[str, str], ...]] = (
    ("lsn", "bigint"),  # its number in the log: dense, in the order of the store's commits
    ("time", "timestamp"),  # by the broker's clock, UTC
    ("type", "string"),  # one of EVENT_TYPES
    ("address", "string"),
    ("offset", "bigint"),  # the number of the message in its node, given when it became available
    ("message_id", "string"),
    ("producer", "string"),
    ("container", "string"),
    ("group", "string"),  # of half messages and sets
    ("half_id", "string"),
    ("set_id", "string"),
    ("epoch", "bigint"),  # a sink's
    ("attempt", "int"),  # the number of a check or of a delivery
    ("outcome", "string"),  # of a settlement: accepted, ...; of a decision: committed, ...; or archived
    ("resolver", "string"),  # who decided: producer, check, admin, deadline
    ("reason", "string"),
    ("seq_stream", "string"),
    ("seq_id", "bigint"),
    ("seq_no", "bigint"),
    ("seq_prev", "bigint"),  # where it is not the number below seq_no
    ("bytes", "bigint"),
    ("txn_id", "string"),
    ("count", "bigint"),  # how many messages a sealed set has
)
"""Name and Spark type of each column, in order."""

EVENT_DDL: Final = ", ".join(f"`{name}` {kind}" for name, kind in EVENT_COLUMNS)
"""The columns of an event as a schema for Spark."""

EVENT_TYPES: Final = (
    "put",  # a message became available in a queue
    "publish",  # the same, by the decision about a half message or an epoch
    "half",  # a half message was put
    "seal",  # a set of half messages is complete: `count` of them
    "check",  # the broker asked about a half message or a set
    "answer",  # and was answered
    "decide",  # committed or rolled back: a half message, or the epoch of a producer
    "void",  # a set was given up
    "park",
    "resume",
    "deliver",  # sent to a consumer; after a crash it may be missing
    "settle",  # the outcome of a delivery
    "dead",  # a message was given up
    "expire",  # its time to live was over
    "reject",  # by the rule of sequences
)
"""Every type, with what it says."""

AVAILABLE: Final = ("put", "publish")
"""The types with which a message becomes available."""

ARCHIVED: Final = "archived"
"""The outcome of a message of a log, told with its coming: nobody takes it."""
COMMITTED: Final = "committed"
ROLLED_BACK: Final = "rolled-back"

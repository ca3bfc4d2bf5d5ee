"""Disk: the store's verbs as values, the `Store` protocol and its reference in memory.

Second doors: `amqp_broker.persistence.questions`, for whoever asks a store; `amqp_broker.persistence.sqlite`,
the store on disk with its errors, where the broker is put together; `amqp_broker.persistence.halves`, of
which whoever writes a `Store`, or tests one, needs the constants.
"""

from amqp_broker.persistence.errors import (
    NodeExists,
    NoSuchNode,
    OutcomesDamaged,
    RowDamaged,
    StoreError,
    StoreFailed,
    StoreFull,
)
from amqp_broker.persistence.halves import (
    Advance,
    Decide,
    DecidedSet,
    DecideEpoch,
    Decision,
    Event,
    ForgetStream,
    Half,
    Hold,
    Journal,
    Reschedule,
    Stream,
)
from amqp_broker.persistence.memory_store import MemoryStore
from amqp_broker.persistence.records import RECORD_OVERHEAD_BYTES, Record
from amqp_broker.persistence.retention import (
    JOURNAL_ID,
    Cursor,
    ForgetCursor,
    MoveCursor,
    Retain,
    Retained,
)
from amqp_broker.persistence.store import (
    Recovered,
    RecoveredNode,
    SpaceState,
    Store,
)
from amqp_broker.persistence.verbs import (
    Configure,
    Contents,
    CreateNode,
    DeleteNode,
    Discharged,
    KeepTime,
    Move,
    Post,
    Purge,
    Retire,
    Return,
    Unit,
    Verb,
)

__all__ = [
    "Advance",
    "Configure",
    "Contents",
    "CreateNode",
    "Cursor",
    "Decide",
    "DecideEpoch",
    "DecidedSet",
    "Decision",
    "DeleteNode",
    "Discharged",
    "JOURNAL_ID",
    "Event",
    "ForgetCursor",
    "ForgetStream",
    "Half",
    "Hold",
    "Journal",
    "KeepTime",
    "MemoryStore",
    "Move",
    "MoveCursor",
    "NoSuchNode",
    "NodeExists",
    "OutcomesDamaged",
    "Post",
    "Purge",
    "RECORD_OVERHEAD_BYTES",
    "Record",
    "Recovered",
    "RecoveredNode",
    "Reschedule",
    "Retain",
    "Retained",
    "Retire",
    "Return",
    "RowDamaged",
    "SpaceState",
    "Store",
    "StoreError",
    "StoreFailed",
    "StoreFull",
    "Stream",
    "Unit",
    "Verb",
]

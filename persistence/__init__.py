"""Disk: the store's verbs as values, the `Store` protocol and its reference in memory.

The second door, `amqp_broker.persistence.sqlite`, is used where the broker is put together.
"""

from typing import TYPE_CHECKING

from amqp_broker.persistence.epochs import DecidedSet, DecideEpoch, Decision
from amqp_broker.persistence.errors import (
    NodeExists,
    NoSuchNode,
    OutcomesDamaged,
    RowDamaged,
    StoreCorrupt,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreInUse,
    StoreTooNew,
    UnsafeSqlite,
)
from amqp_broker.persistence.halves import (
    Advance,
    Decide,
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
    EVENT_LOG,
    Cursor,
    ForgetCursor,
    MoveCursor,
    Retain,
    Retained,
)
from amqp_broker.persistence.store import (
    Quarantined,
    ReadResult,
    Recovered,
    RecoveredNode,
    SpaceState,
    Store,
)
from amqp_broker.persistence.verbs import (
    Configure,
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

if TYPE_CHECKING:
    from amqp_broker.persistence.store_checks import check_store

__all__ = [
    "Advance",
    "Configure",
    "CreateNode",
    "Cursor",
    "Decide",
    "DecideEpoch",
    "DecidedSet",
    "Decision",
    "DeleteNode",
    "Discharged",
    "EVENT_LOG",
    "Event",
    "ForgetCursor",
    "ForgetStream",
    "Half",
    "Hold",
    "Journal",
    "KeepTime",
    "MemoryStore",
    "MoveCursor",
    "Move",
    "NoSuchNode",
    "NodeExists",
    "OutcomesDamaged",
    "Post",
    "Purge",
    "Quarantined",
    "ReadResult",
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
    "StoreCorrupt",
    "StoreError",
    "StoreFailed",
    "StoreFull",
    "StoreInUse",
    "StoreTooNew",
    "Stream",
    "Unit",
    "UnsafeSqlite",
    "Verb",
    "check_store",
]


def __getattr__(name: str) -> object:
    """The checks are loaded by those who test a store, not by a broker (PEP 562)."""
    if name == "check_store":
        from amqp_broker.persistence.store_checks import check_store

        return check_store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

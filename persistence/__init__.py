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
from amqp_broker.persistence.questions import (
    CursorNames,
    CursorsOf,
    DecisionOf,
    DecisionsOf,
    DischargedAt,
    EventRange,
    EventsFrom,
    HalfBodyOf,
    HalfOf,
    HalvesOf,
    LatestDecisionOf,
    OffsetAt,
    OpenHalves,
    PageOf,
    Quarantined,
    Question,
    ReadResult,
    RetainedBy,
    RetainedPageOf,
    SomeHalves,
    StoreId,
    StreamCount,
    StreamOf,
    StreamsOf,
)
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
    "CursorNames",
    "CursorsOf",
    "Decide",
    "DecideEpoch",
    "DecidedSet",
    "Decision",
    "DecisionOf",
    "DecisionsOf",
    "DeleteNode",
    "Discharged",
    "DischargedAt",
    "EVENT_LOG",
    "Event",
    "EventRange",
    "EventsFrom",
    "ForgetCursor",
    "ForgetStream",
    "Half",
    "HalfBodyOf",
    "HalfOf",
    "HalvesOf",
    "Hold",
    "Journal",
    "KeepTime",
    "LatestDecisionOf",
    "MemoryStore",
    "Move",
    "MoveCursor",
    "NoSuchNode",
    "NodeExists",
    "OffsetAt",
    "OpenHalves",
    "OutcomesDamaged",
    "PageOf",
    "Post",
    "Purge",
    "Quarantined",
    "Question",
    "ReadResult",
    "RECORD_OVERHEAD_BYTES",
    "Record",
    "Recovered",
    "RecoveredNode",
    "Reschedule",
    "Retain",
    "Retained",
    "RetainedBy",
    "RetainedPageOf",
    "Retire",
    "Return",
    "RowDamaged",
    "SomeHalves",
    "SpaceState",
    "Store",
    "StoreCorrupt",
    "StoreError",
    "StoreFailed",
    "StoreFull",
    "StoreId",
    "StoreInUse",
    "StoreTooNew",
    "Stream",
    "StreamCount",
    "StreamOf",
    "StreamsOf",
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

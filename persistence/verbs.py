"""What a store is asked to do: verbs as values. A unit is a list of verbs that happens wholly or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, get_args

import attrs

from amqp_broker.persistence.halves import (
    Advance,
    Decide,
    DecideEpoch,
    ForgetStream,
    Hold,
    Journal,
    Reschedule,
)
from amqp_broker.persistence.records import LargeRecord, Record
from amqp_broker.persistence.retention import ForgetCursor, MoveCursor, Retain
from amqp_broker.persistence.termini import (
    ForgetHeld,
    ForgetTerminus,
    ForgetUnsettled,
    KeepHeld,
    KeepTerminus,
    KeepUnsettled,
)


@attrs.define
class CreateNode:
    """Make a node. `settings` is kept as JSON. The receipt is `queue_id`, which the store writes when it
    applies.

    It retains from its first message on if `keep_ms` or `keep_bytes` (as in `Retain`) is not 0.
    """

    name: str
    kind: str
    settings: dict[str, object] = attrs.field(factory=dict)
    queue_id: int = 0
    keep_ms: int = 0
    keep_bytes: int = 0


@attrs.define
class DeleteNode:
    """Remove a node and everything that it holds. Its id is never used again."""

    queue_id: int


@attrs.define
class Configure:
    """Replace the settings of a node."""

    queue_id: int
    settings: dict[str, object]


@attrs.define
class Move:
    """All messages that a node holds become those of another, in their order, from `first_offset` on without
    holes; the node that held them is deleted.

    `first_offset` is at or above the other node's `next_offset`. `at_ms` is the time of it, by the
    caller's clock. What was returned stays as it was. Refused with RowDamaged, nothing moved, if the store
    cannot tell what the node holds.
    """

    from_queue_id: int
    queue_id: int
    first_offset: int
    at_ms: int


@attrs.define(eq=False)
class Contents:
    """Messages that several posts of one unit have: the store keeps their bodies once."""

    records: Sequence[Record]


@attrs.define
class Post:
    """Store messages, numbered by the caller: offsets increase and are at or above the node's `next_offset`.

    Only durable messages are passed; offsets that are left out are never stored. Consecutive ones are
    cheapest. With `contents` they are copies of those at `positions` there (None: of all), in their order.
    """

    queue_id: int
    records: Sequence[Record]
    contents: Contents | None = None
    positions: Sequence[int] | None = None


@attrs.define
class PostLarge:
    """Store one message whose body is in a file of the store already, and is synced there by the commit; as
    Post, else. Several messages may have the octets of one file.
    """

    queue_id: int
    record: LargeRecord


@attrs.define
class Retire:
    """Remove the messages from `first_offset` to `last_offset` inclusive. What is not stored is ignored."""

    queue_id: int
    first_offset: int
    last_offset: int


@attrs.define
class Return:
    """Keep what a returned message's header and annotations say from now on. Ignored if it is not stored.

    It replaces what an earlier Return said: `annotations` None means those of the body.
    """

    queue_id: int
    offset: int
    delivery_count: int
    annotations: bytes | None = None
    acquired_before: bool = True


@attrs.define
class Purge:
    """Remove all messages that the node holds, and keep its numbering."""

    queue_id: int


@attrs.define
class Discharged:
    """Keep that a transaction was committed, with the rest of its unit, of which this is the last verb.

    Only commits are kept (presumed abort). `at_ms` is the time of the discharge, by the caller's clock.
    A `txn_id` is never used twice.
    """

    txn_id: bytes
    at_ms: int


@attrs.define
class KeepTime:
    """Keep what time it is, by the caller's clock that all times in the verbs are of, and with it notes of
    the caller's, any text. `Recovered` has the last ones.
    """

    now_ms: int
    notes: str


# halves.py, the cursors of retention.py, termini.py, and the time
HalfVerb = (
    Hold | Reschedule | Decide | Advance | ForgetStream | Journal | DecideEpoch | MoveCursor | ForgetCursor
    | KeepTerminus | ForgetTerminus | KeepUnsettled | ForgetUnsettled | KeepHeld | ForgetHeld | KeepTime
)  # fmt: skip
HALF_VERBS: Final[frozenset[type]] = frozenset(get_args(HalfVerb))
NodeVerb = CreateNode | DeleteNode | Configure | Move | Purge | Retain
Verb = NodeVerb | Post | PostLarge | Retire | Return | Discharged | HalfVerb
Unit = list[Verb]

"""Retention and cursors as the store knows them: values, and the verbs that change them."""

from __future__ import annotations

from typing import Final

import attrs

JOURNAL_ID: Final = 0  # the queue_id of a cursor on the journal; no node has it
SWEEP_RETAINED: Final = 256  # runs that are dropped in one step


@attrs.define
class Retain:
    """Keep what is retired from a node, marked ARCHIVED, from the next message on.

    `keep_ms`, milliseconds since the message was published, and `keep_bytes`, of bodies, are the bounds
    beyond which `idle` drops the oldest ones; 0 for one of them: no such bound. 0 for both ends retention:
    what is archived is dropped, and what is live stays. The numbering has to be dense from now on.
    """

    queue_id: int
    keep_ms: int
    keep_bytes: int


@attrs.define
class MoveCursor:
    """Set a durable named cursor: the next message of the node that its reader wants. The caller looks
    whether that is forward.

    `at_ms` is the time of it. `queue_id` JOURNAL_ID stands for the journal, whose offsets are
    the numbers of the events. `owner` is the principal whose it is.
    """

    name: str
    queue_id: int
    offset: int
    at_ms: int
    owner: str = ""


@attrs.define
class ForgetCursor:
    """Remove a cursor, on all nodes. One that does not exist is ignored."""

    name: str


@attrs.define
class Retained:
    """What a retaining node keeps: from `first_offset` up to `next_offset`, live and archived, `byte_count`
    of bodies in it.

    `keep_ms` and `keep_bytes` as in `Retain`.
    """

    keep_ms: int
    keep_bytes: int
    first_offset: int
    next_offset: int
    byte_count: int


@attrs.define
class Cursor:
    """Where a named cursor stands in one node, and when it was moved, by the caller's clock. `owner` is the
    principal whose it is; "" for those of stores that knew no owners.
    """

    name: str
    queue_id: int
    offset: int
    moved_at_ms: int
    owner: str = ""

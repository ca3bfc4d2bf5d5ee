"""The store as the broker sees it: a protocol that MemoryStore and SqliteStore implement.

Turns. A store is used by one caller at a time, in strict turns: `apply` runs the statements, in the caller's
thread; then `commit` (blocking, it may run in a worker thread) or `abandon` ends the group. All else are
turns of their own between groups. Overlap is an AssertionError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import attrs

from amqp_broker.persistence.questions import Answer, Quarantined, Question
from amqp_broker.persistence.verbs import Unit

if TYPE_CHECKING:
    from amqp_broker.persistence.backup import Backup
    from amqp_broker.persistence.spools import Spool


@attrs.define
class RecoveredNode:
    """A node as the store holds it. `first_offset` is that of its oldest message, or `next_offset` if it has
    none.

    `byte_count` sums the bodies of its messages, in bytes.
    """

    queue_id: int
    name: str
    kind: str
    settings: dict[str, object]
    next_offset: int
    message_count: int
    byte_count: int
    first_offset: int


@attrs.define
class Recovered:
    """What a store holds at its start, nodes in the order of their creation.

    `quarantined` are nodes whose own row was damaged, since the store was opened: their messages are there,
    their settings are not. `now_ms` and `notes` are of the last `KeepTime`, 0 if there is none.
    """

    nodes: list[RecoveredNode]
    quarantined: list[Quarantined] = attrs.field(factory=list)
    now_ms: int = 0
    notes: str = ""


@attrs.define
class SpaceState:
    """Room on the disk, in bytes. While `refusing`, Post, Hold and Advance are answered with StoreFull and
    everything else goes on.
    """

    free_bytes: int
    low_water_bytes: int
    refusing: bool
    ballast_present: bool


class Store(Protocol):
    """Where durable messages are. What `commit` returned for is there after any crash."""

    def recover(self) -> Recovered:
        """What is stored: nodes, numbering and counts. Raises StoreFailed, and StoreFull if a damaged row of
        a node cannot be put away.
        """

    def apply(self, units: Sequence[Unit]) -> list[Exception | None]:
        """Run the units, in order. One entry for each: None, or why it did not happen (NodeExists,
        NoSuchNode, StoreFull, RowDamaged).

        A unit that is refused leaves no trace and does not disturb the others. The others are durable when
        `commit` returned. Raises StoreFull (nothing happened; the same units again are answered one by one)
        or StoreFailed.
        """

    def commit(self) -> None:
        """End the group; durable when it returns. Raises StoreFull (nothing happened) or StoreFailed
        (unknown).
        """

    def abandon(self) -> None:
        """Roll back what was applied."""

    def ask(self, question: Question[Answer]) -> Answer:
        """The answer (questions.py). Raises what the question says, and StoreFailed."""

    def idle(self, now: float) -> bool:
        """Housekeeping in bounded steps (checkpoint, forgetting what was kept long enough, sweeping,
        compaction); True if more waits. May run in a worker.

        `now` is seconds of the clock that the times in the verbs are of, which never jumps. Call it when
        nothing else is to do, and when `checkpoint_due` says so.
        """

    @property
    def kept_bytes(self) -> int:
        """Octets of memory for messages and events that only the store knows of: retained ones that are in no
        queue any more, half messages, the journal. 0 where they are on disk.
        """

    def begin_spool(self, most_bytes: int = 0) -> Spool | None:
        """A file for one large body, which comes piece by piece and may get so large; None where there is no
        place for one: there is no disk, or no room on it for this one and those that are under way. In the
        thread of `apply`, at any time. Raises OSError, and as `recover` where that was not called.
        """

    def end_spool(self, spool: Spool, stored: bool) -> None:
        """The message of a spool was stored (PostLarge, its commit returned): the file goes when no message
        has it. Or it never will be: the file goes at once. Not to be called while nobody knows which. In the
        thread of `apply`.
        """

    @property
    def checkpoint_due(self) -> bool:
        """`idle` should run before the next group."""

    @property
    def space(self) -> SpaceState:
        """Room on the disk."""

    def begin_backup(self, destination: str) -> Backup:
        """Begin a copy to a new directory, whose steps `backup_step` takes. Raises FileExistsError,
        BackupFailed (also where there is nothing to copy), StoreFailed.
        """

    def backup_step(self) -> bool:
        """Copy one piece; True while there is more; then `Backup.finish` does the rest. May run in a worker.
        Raises BackupFailed, StoreFailed.
        """

    def end_backup(self) -> None:
        """Give up the backup whose steps are under way, if one is."""

    def close(self) -> None:
        """End cleanly; a second call is harmless."""

"""Half messages, decisions about their sets, streams and events: values, and the verbs that change them.

An epoch of a producer's sets is decided once, by one commit that publishes its winning sets (`Move`) and
keeps the decision; what is asked or sent again later finds it.
"""

from __future__ import annotations

import json
from typing import Final

import attrs

PREPARED: Final = "prepared"
PARKED: Final = "parked"
COMMITTED: Final = "committed"
ROLLED_BACK: Final = "rolled-back"
OPEN: Final = (PREPARED, PARKED)
DECIDED: Final = (COMMITTED, ROLLED_BACK)
BY_POLICY: Final = "deadline"  # the resolver of what nobody decided: the broker rolled it back

_encode = json.JSONEncoder(separators=(",", ":")).encode

Columns = dict[str, list[str | int | None]]

LAST_EPOCH: Final = (1 << 63) - 1  # epochs are numbers from 0 to this
KEEP_DECISIONS: Final = 1000  # of a producer, the newest: only the last few are ever asked for again
ROW_BYTES: Final = 48  # of the numbers of an event and of its row itself, about
EVENT_RUN_MAX: Final = 4096  # entries of one run: more are a long time for who wants to read one of them


@attrs.define
class Half:
    """One half message, without its body. Times are milliseconds of the caller's clock, 0 is none.

    `queue` and `offset` are where the message of a committed one stands (offset -1: nowhere).

    `half_id` is opaque here; (`group`, `half_id`) is its key. `state` is prepared, parked, committed or
    rolled-back. `destination` is the name of the queue that it is for. `expires_at_ms`: when a decided one is
    forgotten.
    """

    group: str
    half_id: bytes
    destination: str
    state: str
    digest: bytes
    put_at_ms: int
    due_at_ms: int
    deadline_ms: int
    container_id: str
    size_bytes: int
    message_format: int = 0
    priority: int = 4
    ttl_ms: int = 0
    attempts: int = 0
    resolved_at_ms: int = 0
    resolver: str = ""
    reason: str = ""
    expires_at_ms: int = 0
    queue: str = ""
    offset: int = -1


def keeps_body(half: Half) -> bool:
    """Is the body of a half message kept in the state that it is in?"""
    return half.state in OPEN or (half.state == ROLLED_BACK and half.resolver == BY_POLICY)


@attrs.define
class Hold:
    """Store a half message and its body (everything after the header).

    Its key is not stored yet, or is that of a decided one whose `expires_at_ms` is not after the new one's
    `put_at_ms`: that one is forgotten.
    """

    half: Half
    body: bytes


@attrs.define
class Reschedule:
    """Keep when a half message is asked next, after an answer that left it undecided, a parking or a
    resumption.
    """

    group: str
    half_id: bytes
    state: str
    attempts: int
    due_at_ms: int
    deadline_ms: int


@attrs.define
class Decide:
    """Keep that a half message was committed or rolled back; until `expires_at_ms` repeats find it.

    The body is forgotten with a commit (it is posted in the same unit), and with a rollback that somebody
    asked for. It is kept with the tombstone where nobody did: what the broker rolled back by its policy is
    never lost before somebody could look at it.
    """

    group: str
    half_id: bytes
    state: str
    resolved_at_ms: int
    resolver: str
    reason: str
    expires_at_ms: int
    queue: str = ""
    offset: int = -1


@attrs.define
class Stream:
    """Where a sequenced stream of a queue stands. `former`: former ids with their last numbers, oldest
    first.
    """

    queue_id: int
    stream: str
    owner: str
    seq_id: int
    seq_no: int
    former: tuple[tuple[int, int], ...] = ()
    reject_count: int = 0
    last_access_ms: int = 0


@attrs.define
class Advance:
    """Keep where a stream stands."""

    stream: Stream


@attrs.define
class ForgetStream:
    """An administrator's reset: the stream begins anew, and belongs to nobody."""

    queue_id: int
    stream: str


@attrs.define
class Event:
    """One entry of the append-only journal, or a run of `count` alike. `seq` is dense and increasing, given
    by the store: that of the first.

    `columns` are the fields in which the entries of a run differ: `count` values each, None where an entry
    has no such field.
    """

    kind: str
    at_ms: int
    fields: dict[str, str | int]
    seq: int = 0
    count: int = 1
    columns: Columns = attrs.field(factory=dict)

    def singles(self, start: int, stop: int) -> list[Event]:
        """The entries from `start` up to `stop` of the run, each for itself: fresh ones."""
        shared = self.fields
        if not self.columns:
            return [Event(self.kind, self.at_ms, dict(shared), self.seq + at) for at in range(start, stop)]
        found = []
        columns = list(self.columns.items())
        for at in range(start, stop):
            fields = dict(shared)
            for name, values in columns:
                value = values[at]
                if value is not None:
                    fields[name] = value
            found.append(Event(self.kind, self.at_ms, fields, self.seq + at))
        return found

    def copy(self) -> Event:
        """Another one of the same content."""
        columns = {name: list(values) for name, values in self.columns.items()}
        return Event(self.kind, self.at_ms, dict(self.fields), self.seq, self.count, columns)

    def problem(self) -> str | None:
        """Why this cannot be, or None."""
        if not 1 <= self.count <= EVENT_RUN_MAX:
            return f"it stands for {self.count} entries, expected 1 to {EVENT_RUN_MAX}"
        for name, values in self.columns.items():
            if len(values) != self.count:
                return f"it stands for {self.count} entries, but has {len(values)} values of {name!r}"
        return None


@attrs.define
class Journal:
    """Append an event; its `seq` is written when the unit is applied."""

    event: Event


def encoded_fields(event: Event) -> str:
    """The fields of a run as they are stored (event_table.py)."""
    if not event.columns:
        return _encode(event.fields)
    if event.count == 1:
        return _encode(event.singles(0, 1)[0].fields)
    return _encode([event.fields, event.columns])


def size_of(kind: bytes, fields: bytes) -> int:
    """The bytes that a row with these texts counts."""
    return ROW_BYTES + len(kind) + len(fields)


def size_of_event(event: Event) -> int:
    """The bytes that an event counts where it is not in rows."""
    return size_of(event.kind.encode(), encoded_fields(event).encode())


DecidedSet = tuple[str, int, int] | tuple[str, int, int, str]
"""(set_id, count, checksum) of a set, and the id of the store that has its messages if it is another one."""


@attrs.frozen
class Decision:
    """What was decided about an epoch: each winning set, in their order; `coordinator` is the store that
    decided it, if it is another one.

    `decided_at_ms` is in milliseconds of the caller's clock; a checksum has 64 bits, without a sign.
    """

    group: str
    producer: str
    epoch: int
    decided_at_ms: int
    winners: tuple[DecidedSet, ...] = ()
    coordinator: str = ""


@attrs.define
class DecideEpoch:
    """Keep a decision for good, or until the producer has `KEEP_DECISIONS` later ones.

    Nothing is kept yet about this epoch of this producer.
    """

    decision: Decision

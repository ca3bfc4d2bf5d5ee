"""Half messages on disk.

`half` has a row for each: the open ones, and the decided ones until they are forgotten, under a number of its
own, with an index by name. So what is put and decided about the same time lies together, a decision writes
pages that others write too, and only a put touches the page of its name. `half_body` has the bodies, by the
same number; those that policy rolled back keep theirs, up to a bound in bytes, whose sum stands in `meta`.
Open ones and those rolled back have small indexes besides, for lists and for the start; decided
ones one by the time when they are forgotten. The name is the key, not a hash of it: names that count up, as
many clients make them, then share pages, lists come in order, and no two are taken for one.

Measured with a million tombstones, random names, pages of 8 KiB, groups of 300 puts and 300 decisions,
without Python and without syncs, CPU for each half message:

    design                                       look-up   put and commit   WAL for each
    name as primary key, WITHOUT ROWID            9.2 us          36.8 us       18,800 B
    number, index by name (this one)              7.8 us          23.9 us       11,600 B
    the same, one index for open and decided      7.4 us          21.4 us       11,200 B
    number, index by a 64-bit hash of the name    7.1 us          21.0 us        9,400 B

The store as a whole, bodies of 100 B, groups of 300, CPU for each (two busy cores: wall twice as much):

    tombstones, names    half() of none   put, COMMIT   half()   half_body()   decide and post, COMMIT    WAL
    0, random                    7.5 us       15.3 us  13.7 us        4.6 us                   14.0 us  3.2 kB
    1,000,000, random           11.8 us       24.6 us  17.3 us        4.9 us                   14.9 us   12 kB
    1,000,000, counting          7.9 us       15.9 us  14.4 us        4.8 us                   14.0 us  1.9 kB

That is 65,000, 41,000 and 63,000 puts a second; an event with each takes 5 us more.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Final

from amqp_broker.persistence.checksums import crc32
from amqp_broker.persistence.directory import body_seed
from amqp_broker.persistence.errors import RowDamaged
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.half_changes import HalfChange, HalfChanges, Key, NumberedHalf, copy_of
from amqp_broker.persistence.halves import OPEN, ROLLED_BACK, Half, keeps_body
from amqp_broker.persistence.keep_clock import FORGET_HALVES
from amqp_broker.persistence.questions import HalfBodyOf, HalfOf, HalvesOf, OpenHalves, SomeHalves
from amqp_broker.persistence.sqlite_library import Parameters
from amqp_broker.persistence.table import TEXT, Column, SqlTable, blobs, integers, sound_page, texts
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork

KNOWN_ROWS: Final = 8192  # that were looked up since the last change: who asks is about to change them
RECENT_ROWS: Final = 4096  # open ones that were written last: who puts one is about to decide it
NAMES_AT_ONCE: Final = 64  # that one statement looks up
FORGET_BYTES: Final = 8 * 1024 * 1024  # of bodies in one step: SQLite reads each page that it frees
def _body_of(_: int, body: bytes) -> bytes:
    return body


def _body_checksum(number: int, body: bytes) -> int:
    """A body is right in its own half message only."""
    return crc32(body, body_seed(number))


HALF: Final = SqlTable(
    "half",
    3,
    ("id",),
    [
        *integers("id", "put_at_ms", "size_bytes", "message_format", "priority", "ttl_ms", "attempts"),
        *integers("due_at_ms", "deadline_ms", "resolved_at_ms", "expires_at_ms", "offset", "forget_ms"),
        Column("group_name", TEXT, field="group"),
        *blobs("half_id"),
        *texts("destination", "container_id"),
        *blobs("digest"),
        *texts("state", "resolver", "reason", "queue"),
    ],
    Half,
    measured=9,
)
HALF_BODY: Final = SqlTable(
    "half_body", 3, ("id",), [*integers("id"), *blobs("body")], _body_of, checksum=_body_checksum
)

_HALF_ID: Final = HALF.names.index("half_id")
_UPDATE, _changed = HALF.update(
    "attempts", "due_at_ms", "deadline_ms", "resolved_at_ms", "expires_at_ms", "offset", "forget_ms",
    "state", "resolver", "reason", "queue",
)  # fmt: skip
_FIND: Final = HALF.select("WHERE group_name=? AND half_id=?")
_FIND_SOME: Final = HALF.select(
    f"INDEXED BY half_key WHERE group_name=? AND half_id IN ({', '.join('?' * NAMES_AT_ONCE)})"
)
_BODY: Final = HALF_BODY.select("WHERE id=?")
_OPEN_ONES: Final = HALF.select("INDEXED BY half_open WHERE forget_ms=0 ORDER BY id")
_BEHIND: Final = "group_name=? AND half_id>?"
_OF_STATE: Final = f"{_BEHIND} AND state=? ORDER BY half_id LIMIT ?"
_LIST: Final = HALF.select(f"WHERE {_BEHIND} ORDER BY half_id LIMIT ?")
_LIST_COMMITTED: Final = HALF.select(f"WHERE {_OF_STATE}")
_LIST_OPEN: Final = HALF.select(f"INDEXED BY half_open WHERE forget_ms=0 AND {_OF_STATE}")
_LIST_ROLLED_BACK: Final = HALF.select(
    f"INDEXED BY half_rolled_back WHERE state='{ROLLED_BACK}' AND {_OF_STATE}"
)
_LAST: Final = (
    "SELECT coalesce(max(id), 0) FROM "
    "(SELECT max(id) AS id FROM half UNION ALL SELECT max(id) FROM half_body)"
)
KEPT_KEY: Final = "half_kept_bytes"
_KEPT: Final = "SELECT CAST(value AS BLOB) FROM meta WHERE key=?"
_SAVE_KEPT: Final = "REPLACE INTO meta VALUES (?, ?)"
_COUNT_KEPT: Final = (  # all bodies are looked at: only where an older version, or an administrator, was last
    "SELECT coalesce(sum(h.size_bytes), 0) FROM half_body b CROSS JOIN half h ON h.id=b.id "
    "WHERE h.forget_ms>0"
)
_KEPT_OF: Final = "SELECT h.size_bytes FROM half h JOIN half_body b ON b.id=h.id WHERE h.id=?"
_OLDEST_KEPT: Final = (
    "SELECT b.id, h.size_bytes FROM half_body b CROSS JOIN half h ON h.id=b.id WHERE h.forget_ms>0 "
    "ORDER BY b.id LIMIT ?"
)
_DELETE: Final = "DELETE FROM half WHERE id=?"
_DELETE_BODY: Final = "DELETE FROM half_body WHERE id=?"
_EXPIRED: Final = (
    "SELECT id, size_bytes, EXISTS (SELECT 1 FROM half_body b WHERE b.id=half.id) "
    "FROM half INDEXED BY half_forget WHERE forget_ms>0 AND forget_ms<=? ORDER BY forget_ms LIMIT ?"
)


class HalfTable:
    """The tables `half` and `half_body`; memory holds nothing of them but what was just asked for or put."""

    def __init__(self, unit: UnitOfWork, keep_bytes: int = 0) -> None:
        self._unit = unit
        self._keep_bytes = keep_bytes  # of bodies of what policy rolled back; 0 for no bound
        self._kept_bytes = 0
        self._kept_then = 0  # if the group under way commits
        self._next_number = 1
        self._known: dict[Key, Row | None] = {}  # sound rows as the last commit left them
        self._recent: dict[Key, NumberedHalf] = {}  # the same of open ones, as they were written
        self._written: list[tuple[Key, NumberedHalf]] = []  # by the group under way

    def load(self) -> None:
        """Raises StoreCorrupt, StoreFailed."""
        ((last,),) = self._unit.query(_LAST)
        self._next_number = last + 1
        self._kept_bytes = self._kept_then = self._stored_kept()

    def _stored_kept(self) -> int:
        for (value,) in self._unit.query(_KEPT, (KEPT_KEY,)):
            if isinstance(value, bytes) and value.isdigit():
                return int(value)
        ((counted,),) = self._unit.query(_COUNT_KEPT)
        return int(counted)

    # Reading

    def find(self, group: str, half_id: bytes) -> NumberedHalf | None:
        """The number of a half message, and the half message. Raises RowDamaged, StoreFailed."""
        key = (group, half_id)
        recent = self._recent.get(key)
        if recent is not None:
            return recent[0], copy_of(recent[1])
        self.check(group, half_id)
        row = self._known[key]
        return None if row is None else (row[0], HALF.made(row))

    def check(self, group: str, half_id: bytes) -> None:
        """Raises RowDamaged if its row is, and StoreFailed."""
        key = (group, half_id)
        if key in self._known or key in self._recent:
            return
        rows = HALF.query(self._unit, _FIND, key)
        row = rows[0] if rows else None
        if row is not None and not HALF.is_sound(row):
            raise RowDamaged(f"half message {half_id!r} of {group!r} does not match its checksum")
        self._known[key] = row

    def some(self, asked: SomeHalves) -> dict[bytes, Half | None]:
        group, half_ids = asked.group, asked.half_ids
        if len(self._known) + len(half_ids) > KNOWN_ROWS:
            self._known.clear()
        known, recent = self._known, self._recent
        keys = [(group, half_id) for half_id in half_ids]
        wanted = [key[1] for key in keys if key not in known and key not in recent]
        for start in range(0, len(wanted), NAMES_AT_ONCE):
            self._look_up(group, wanted[start : start + NAMES_AT_ONCE])
        found: dict[bytes, Half | None] = {}
        for key in keys:
            if key in recent:
                found[key[1]] = copy_of(recent[key][1])
            elif key in known:
                row = known[key]
                found[key[1]] = None if row is None else HALF.made(row)
        return found

    def _look_up(self, group: str, half_ids: list[bytes]) -> None:
        """What is damaged is left to those who want it."""
        filled = half_ids + half_ids[-1:] * (NAMES_AT_ONCE - len(half_ids))
        try:
            rows = HALF.query(self._unit, _FIND_SOME, (group, *filled))
        except RowDamaged:
            return
        there = {row[_HALF_ID]: row for row in rows if HALF.is_sound(row)}
        if len(there) == len(rows):
            for half_id in half_ids:
                self._known[group, half_id] = there.get(half_id)

    def half(self, asked: HalfOf) -> Half | None:
        if len(self._known) >= KNOWN_ROWS:
            self._known.clear()
        found = self.find(asked.group, asked.half_id)
        return None if found is None else found[1]

    def body(self, asked: HalfBodyOf) -> bytes | None:
        found = self.find(asked.group, asked.half_id)
        if found is None or not keeps_body(found[1]):
            return None
        rows = HALF_BODY.query(self._unit, _BODY, (found[0],))
        for row in rows:
            body = HALF_BODY.value(row)
            if body is not None:
                return body
        if not rows and found[1].state not in OPEN:
            return None  # beyond the bound
        raise RowDamaged(f"the body of half message {asked.half_id!r} of {asked.group!r} is damaged")

    def open_ones(self, _: OpenHalves) -> list[Half]:
        return [HALF.made(row) for row in HALF.query(self._unit, _OPEN_ONES) if HALF.is_sound(row)]

    def page(self, asked: HalvesOf) -> list[Half]:
        group, state = asked.group, asked.state
        chosen: Parameters = () if state is None else (state,)
        sql = _LIST if state is None else _LIST_COMMITTED
        if state in OPEN:
            sql = _LIST_OPEN
        elif state == ROLLED_BACK:
            sql = _LIST_ROLLED_BACK
        return sound_page(
            lambda after, limit: HALF.query(self._unit, sql, (group, after, *chosen, limit)),
            HALF.value,
            itemgetter(_HALF_ID),
            asked.after,
            asked.count,
        )

    # Writing

    def write(self, changes: HalfChanges, stamp: int) -> int:
        """Run inside the transaction of the group; the next number if that commits. Raises as
        `UnitOfWork.execute`.
        """
        number = self._next_number
        new: list[Parameters] = []
        updated: list[Parameters] = []
        bodies: list[Parameters] = []
        replaced: list[Parameters] = []
        bodiless: list[Parameters] = []
        written = self._written = []
        kept_bytes = 0
        for key, change in changes.halves.items():
            written.append((key, (change.number or number, change.half)))
            if change.decided and keeps_body(change.half):
                kept_bytes += change.half.size_bytes
            if change.number:
                updated.append(_changed(_row_of(change, change.number, stamp)))
                if not keeps_body(change.half):
                    bodiless.append((change.number,))
                continue
            new.append(_row_of(change, number, stamp))
            if change.body is not None:
                bodies.append(HALF_BODY.row(number, change.body))
            if change.replaces:
                replaced.append((change.replaces,))
            number += 1
        if changes.holds:
            fault_point("hold.before_halves")
            if replaced:
                for number_of_one in replaced:
                    kept_bytes -= sum([size for (size,) in self._unit.query(_KEPT_OF, number_of_one)])
                self._delete(replaced)
            self._unit.execute_many(HALF.insert, new)
            fault_point("hold.after_halves")
            self._unit.execute_many(HALF_BODY.insert, bodies)
            fault_point("hold.after_bodies")
        if changes.decides:
            fault_point("decide.before_halves")
        if updated:
            changed = self._unit.execute_many(_UPDATE, updated)
            assert changed == len(updated), f"{changed} of {len(updated)} half messages are there"
        if changes.decides:
            fault_point("decide.after_halves")
            self._unit.execute_many(_DELETE_BODY, bodiless)
            fault_point("decide.after_bodies")
        self._count_kept(kept_bytes)
        return number

    def _count_kept(self, more: int) -> None:
        """Store how many bytes of bodies are kept, in the transaction that changes it."""
        self._kept_then = self._kept_bytes + more
        if more:
            self._unit.execute(_SAVE_KEPT, (KEPT_KEY, str(self._kept_then)))

    def keep(self, next_number: int) -> None:
        """The group is durable."""
        self._next_number = next_number
        self._kept_bytes = self._kept_then
        self._known.clear()
        recent = self._recent
        for key, found in self._written:
            recent.pop(key, None)
            if found[1].state in OPEN:
                recent[key] = found
        while len(recent) > RECENT_ROWS:
            del recent[next(iter(recent))]

    def forget_step(self, clock_ms: int) -> tuple[int, bool]:
        """Forget some that were decided and kept long enough, oldest first, or else bodies beyond their
        bound: how many, and whether more waits.

        Raises StoreFull (nothing happened), StoreCorrupt, StoreFailed.
        """
        rows = self._unit.query(_EXPIRED, (clock_ms, FORGET_HALVES))
        if not rows:
            return self._drop_bodies()
        size = 0
        kept_bytes = 0
        numbers: list[Parameters] = []
        for number, size_bytes, has_body in rows:
            numbers.append((number,))
            size += size_bytes
            kept_bytes += size_bytes if has_body else 0
            if size > FORGET_BYTES:
                break
        self._known.clear()
        self._unit.begin()
        self._delete(numbers)
        self._count_kept(-kept_bytes)
        fault_point("expire.before_commit")
        self._unit.commit()
        self._kept_bytes = self._kept_then
        return len(numbers), len(numbers) < len(rows) or len(rows) == FORGET_HALVES

    def _drop_bodies(self) -> tuple[int, bool]:
        """Some bodies of what policy rolled back, beyond the bound; the oldest first."""
        excess = self._kept_bytes - self._keep_bytes
        if not self._keep_bytes or excess <= 0:
            return 0, False
        size = 0
        numbers: list[Parameters] = []
        for number, size_bytes in self._unit.query(_OLDEST_KEPT, (FORGET_HALVES,)):
            numbers.append((number,))
            size += size_bytes
            if size >= min(excess, FORGET_BYTES):
                break
        if not numbers:
            return 0, False
        self._unit.begin()
        self._unit.execute_many(_DELETE_BODY, numbers)
        self._count_kept(-size)
        fault_point("expire.before_commit")
        self._unit.commit()
        self._kept_bytes = self._kept_then
        return len(numbers), size < excess

    def _delete(self, numbers: list[Parameters]) -> None:
        self._unit.execute_many(_DELETE_BODY, numbers)
        self._unit.execute_many(_DELETE, numbers)


def _row_of(change: HalfChange, number: int, stamp: int) -> Parameters:
    half = change.half
    forget_ms = max(stamp + half.expires_at_ms - half.resolved_at_ms, 1) if change.decided else 0
    return HALF.row(half, number, forget_ms)

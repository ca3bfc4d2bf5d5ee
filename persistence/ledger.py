"""Half messages, streams, decisions, events, cursors and termini on disk, written and forgotten together."""

from __future__ import annotations

from typing import Final

from amqp_broker.persistence.cursor_table import CursorTable
from amqp_broker.persistence.epoch_table import EpochTable
from amqp_broker.persistence.errors import RowDamaged, StoreCorrupt
from amqp_broker.persistence.event_table import EventTable, pages_of_events
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.half_changes import HalfChanges
from amqp_broker.persistence.half_table import HalfTable
from amqp_broker.persistence.halves import Decide, DecideEpoch, Hold, Reschedule
from amqp_broker.persistence.keep_clock import SAVE_EVERY_MS, KeepClock
from amqp_broker.persistence.stream_table import StreamTable
from amqp_broker.persistence.terminus_table import TerminusTable
from amqp_broker.persistence.unit_of_work import UnitOfWork
from amqp_broker.persistence.verbs import KeepTime

CLOCK_KEY: Final = "kept_ms"
NOW_KEY: Final = "now_ms"
NOTES_KEY: Final = "clock_notes"
_META: Final = "SELECT CAST(value AS BLOB) FROM meta WHERE key=?"
_SAVE_META: Final = "REPLACE INTO meta VALUES (?, ?)"


class Ledger:
    """The tables, and the clock by which they forget."""

    def __init__(
        self, unit: UnitOfWork, event_keep_ms: int, event_keep_bytes: int = 0, half_keep_bytes: int = 0
    ) -> None:
        self._unit = unit
        self.halves = HalfTable(unit, half_keep_bytes)
        self.streams = StreamTable(unit)
        self.events = EventTable(unit, event_keep_ms, event_keep_bytes)
        self.epochs = EpochTable(unit)
        self.cursors = CursorTable(unit)
        self.termini = TerminusTable(unit)
        self._clock = KeepClock()
        self._saved_ms = 0
        self._forgets = True  # until damage stands in the way

    def load(self) -> None:
        """Raises StoreCorrupt, StoreFailed."""
        self.halves.load()
        self.cursors.load()
        shown, saved, (now_ms, _) = self.events.load(), _number(self._meta(CLOCK_KEY)), self.time()
        if now_ms:
            self._clock.load(saved, now_ms / 1_000)
        else:  # nobody has told the time, or an older version did not keep it
            self._clock.load(max(shown, saved))
        self._saved_ms = saved

    def time(self) -> tuple[int, str]:
        """What `KeepTime` said last: (now_ms, notes); 0 if that is not known. Raises StoreCorrupt,
        StoreFailed.
        """
        return _number(self._meta(NOW_KEY)), self._meta(NOTES_KEY)

    def _meta(self, key: str) -> str:
        for (value,) in self._unit.query(_META, (key,)):
            if isinstance(value, bytes):
                return value.decode(errors="replace")
        return ""

    def objection(self, verb: Hold | Decide | Reschedule | DecideEpoch) -> RowDamaged | None:
        """Why a half message cannot be changed, or an epoch decided: what is stored is unknown.

        Raises StoreFailed.
        """
        try:
            if isinstance(verb, DecideEpoch):
                decision = verb.decision
                self.epochs.find(decision.group, decision.producer, decision.epoch)
            else:
                key = verb.half if isinstance(verb, Hold) else verb
                self.halves.check(key.group, key.half_id)
        except RowDamaged as error:
            return error
        return None

    def changes(self) -> HalfChanges:
        """The changes of a new group, none at first."""
        return HalfChanges(self.halves.find, self.events.next_seq, self._is_decided)

    def _is_decided(self, group: str, producer: str, epoch: int) -> bool:
        return self.epochs.find(group, producer, epoch) is not None

    def write(self, changes: HalfChanges) -> int:
        """Run inside the transaction of the group; the next number of a half message if that commits.

        Raises as `UnitOfWork.execute`.
        """
        stamp = self._clock.stamp() if changes.dated else 0
        next_number = self.halves.write(changes, stamp) if changes.halves else 0
        if changes.streams:
            self.streams.write(changes.streams)
        if changes.decisions:
            self.epochs.write(changes.decisions)
        if changes.cursors or changes.forgotten_cursors:
            self.cursors.write(changes)
        if changes.of_termini:
            self.termini.write(changes)
        if changes.time is not None:
            self._save_clock(self.tell(changes.time), changes.time.now_ms)
            self._unit.execute(_SAVE_META, (NOTES_KEY, changes.time.notes))
        self.events.write(changes.events, stamp)
        return next_number

    def keep(self, changes: HalfChanges, next_number: int) -> int:
        """The changes are durable: memory follows. Returns about how many pages they took."""
        if next_number:
            self.halves.keep(next_number)
        self.events.keep(changes.events, changes.next_seq)
        self.cursors.keep(changes)
        size = sum([len(change.body) for change in changes.halves.values() if change.body is not None])
        rows = len(changes.halves) + len(changes.streams) + len(changes.decisions) + len(changes.cursors)
        rows += len(changes.termini) + len(changes.unsettled) + len(changes.forgotten_termini)
        rows += len(changes.held)
        entries = sum([event.count for event in changes.events])
        return rows + size // 4096 + pages_of_events(len(changes.events), entries)

    def forget_step(self, now: float) -> tuple[int, bool]:
        """Forget some of what was kept long enough: about how many pages that took, and whether more waits.

        What is damaged stays, for verification. Raises StoreFull (nothing happened), StoreFailed.
        """
        clock_ms = self._clock.tick(now)
        if not self._forgets:
            return 0, False
        try:
            halves, more_halves = self.halves.forget_step(clock_ms)
            event_pages, more_events = self.events.forget_step(clock_ms)
            pages = halves + event_pages
            if clock_ms >= self._saved_ms + SAVE_EVERY_MS:
                self._unit.begin()
                self._save_clock(clock_ms, round(1_000 * now))
                self._unit.commit()
                self._saved_ms = clock_ms
                pages += 1
        except StoreCorrupt:
            self._forgets = False
            return 0, False
        return pages, more_halves or more_events

    def tell(self, time: KeepTime) -> int:
        """Take the time: what is kept is so much older, whatever becomes of the group."""
        return self._clock.tick(time.now_ms / 1_000)

    def _save_clock(self, clock_ms: int, now_ms: int) -> None:
        self._unit.execute_many(_SAVE_META, [(CLOCK_KEY, str(clock_ms)), (NOW_KEY, str(now_ms))])


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def pass_points(changes: HalfChanges, when: str) -> None:
    """The fault points of a group with such verbs: `before_commit`, and `after_commit` once it is durable."""
    for what, there in (
        ("hold", changes.holds),
        ("decide", changes.decides),
        ("advance", changes.advances),
        ("epoch", changes.decisions),
        ("cursor", changes.cursors or changes.forgotten_cursors),
        ("terminus", changes.of_termini),
    ):
        if there:
            fault_point(f"{what}.{when}")

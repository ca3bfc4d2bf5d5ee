"""The answers to a run of messages of sequenced streams, each by where the one before left its stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from amqp_broker.coordinator.sequences import Numbering, SequenceAnswer, StreamPosition, accept, expected_prev
from amqp_broker.frames import Accepted, Error, Rejected, Uint, Ulong
from amqp_broker.persistence import RowDamaged, Stream
from amqp_broker.places import Place
from amqp_broker.sequences.positions import TooManyStreams

ACCEPTED: Final = Accepted()

_ACCEPT: Final = SequenceAnswer.ACCEPT
_DUPLICATE: Final = SequenceAnswer.DUPLICATE
_GAP: Final = SequenceAnswer.GAP


class _View:
    """One stream while the run is judged."""

    __slots__ = ("accepted", "answered", "counted", "outcome", "owner", "position", "stream")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.position = StreamPosition(stream.seq_id, stream.seq_no, stream.former)
        self.owner = stream.owner
        self.accepted = False
        self.counted = 0
        self.answered: object = None  # what the last refusal was about: equal ones are told in one range
        self.outcome: Rejected | None = None


class Judging:
    """`find` tells where a stream stands before the run, `who` is the principal that sends it, `may_use`
    whether the access list lets it use streams of others. `check_room` raises TooManyStreams where the run
    may not make so many new ones.
    """

    def __init__(
        self, find: Callable[[str], Stream], who: str, may_use: Callable[[], bool],
        check_room: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._find = find
        self._who = who
        self._may_use = may_use
        self._check_room = check_room
        self.made = 0
        """How many streams begin in the run."""
        self._views: dict[str, _View] = {}
        self._lost: dict[str, Rejected] = {}  # streams that cannot be read, and what is said of them

    def answer(self, place: Place, room: Callable[[], Rejected | None] | None = None) -> tuple[bool, Any]:
        """Whether the message is taken, and its outcome; a duplicate is accepted and not taken. `room` is
        asked for one that could be accepted: where it refuses, the stream does not move.
        """
        view = self._views.get(place.stream)
        if view is None:
            if place.stream in self._lost:
                return False, self._lost[place.stream]
            found = self._look_up(place.stream)
            if isinstance(found, Rejected):
                return False, found
            view = found
        if view.owner != self._who and view.owner and not self._may_use():
            return False, self._foreign(view)
        answer, after = accept(view.position, place.numbering)
        if answer is _ACCEPT:
            begins = not view.stream.seq_id and not view.accepted
            full = self._no_room() if begins else None
            if full is None and room is not None:
                full = room()
            if full is not None:
                return False, full
            view.position = after
            self.made += begins
            view.owner = view.owner or self._who
            view.accepted = True
            view.counted = 0
            return True, ACCEPTED
        view.counted += 1
        if answer is _DUPLICATE:
            return False, ACCEPTED
        return False, self._refusal(view, answer, place.numbering)

    def changes(self, now_ms: int) -> list[Stream]:
        """The streams as the run leaves them: those that moved, and those that only refused."""
        changed = []
        for view in self._views.values():
            stream = view.stream
            if view.accepted or view.counted:
                rejects = view.counted if view.accepted else stream.reject_count + view.counted
                at = view.position
                left = Stream(stream.queue_id, stream.stream, view.owner, at.seq_id, at.seq_no, at.former)
                left.reject_count = rejects
                left.last_access_ms = now_ms
                changed.append(left)
        return changed

    def refusals(self) -> list[tuple[str, int]]:
        """How many messages of a stream were not taken since its last acceptance."""
        return [(name, view.counted) for name, view in self._views.items() if view.counted]

    @property
    def seen(self) -> list[Stream]:
        """Each stream of the run as it was before, in the order of first use."""
        return [view.stream for view in self._views.values()]

    def _look_up(self, name: str) -> _View | Rejected:
        try:
            view = self._views[name] = _View(self._find(name))
            return view
        except RowDamaged as error:
            condition, text = "amqp:internal-error", f"where stream {name!r} stands is not known: {error}"
        except TooManyStreams as error:
            condition, text = "amqp:resource-limit-exceeded", str(error)
        rejected = self._lost[name] = Rejected(error=Error(condition=condition, description=text))
        return rejected

    def _no_room(self) -> Rejected | None:
        try:
            self._check_room(self.made + 1)
        except TooManyStreams as error:
            return Rejected(error=Error(condition="amqp:resource-limit-exceeded", description=str(error)))
        return None

    def _foreign(self, view: _View) -> Rejected:
        return self._same(
            view, (view.owner,), "amqp:unauthorized-access",
            f"stream {view.stream.stream!r} belongs to another principal than {self._who!r}", None,
        )  # fmt: skip

    def _refusal(self, view: _View, answer: SequenceAnswer, numbering: Numbering) -> Rejected:
        at = view.position
        name = view.stream.stream
        info = {"seq-id": Ulong(at.seq_id), "seq-no": Uint(at.seq_no)}
        if answer is not _GAP:
            text = (
                f"stream {name!r} is at id {at.seq_id}, number {at.seq_no}: expected no lower id than that, "
                f"got {numbering.seq_id}"
            )
            return self._same(view, (answer, at, numbering.seq_id), answer.value, text, info)
        prev = expected_prev(at, numbering)
        new = "" if numbering.seq_id == at.seq_id else f" as the beginning of id {numbering.seq_id}"
        text = (
            f"the last accepted message of stream {name!r} is id {at.seq_id}, number {at.seq_no}: expected "
            f"prev {prev}{new}; send again from there, in order"
        )
        info["expected-prev"] = Uint(prev)
        return self._same(view, (answer, at, numbering.seq_id), answer.value, text, info)

    def _same(
        self, view: _View, about: object, condition: str, text: str, info: dict[str, Any] | None
    ) -> Rejected:
        """The identical outcome as before, where it is about the same."""
        if view.outcome is None or view.answered != about:
            view.answered = about
            view.outcome = Rejected(error=Error(condition=condition, description=text, info=info))
        return view.outcome

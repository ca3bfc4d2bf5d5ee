"""Three writers of half messages, who put, commit and roll back at random, and repeat what they got no answer
for. At the end everything that was put is decided, the destination is drained, and all answers are compared.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from amqp_broker.frames import Accepted, Rejected
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.peer import PeerSender
from tests.crash.deaths import Death, points_of
from tests.crash.evidence import Record
from tests.crash.half_history import (
    ACCEPTED,
    COMMIT,
    DESTINATION,
    PUT,
    ROLLBACK,
    UNKNOWN,
    HalfHistory,
    check_halves,
)
from tests.crash.workload import LivingClient, Workload, drain
from tests.support.halves import half, putter, resolution, resolver

WRITERS = 3
PIPELINED = 8


class Writer(LivingClient):
    """One client in one life of the broker."""

    def __init__(self, port: int, name: str, history: HalfHistory, chance: random.Random) -> None:
        super().__init__(name, port)
        self._history = history
        self._chance = chance
        self._numbered = 0

    def drive(self, connection: BlockingPeer) -> None:
        """Until the broker is gone."""
        session = connection.begin()
        put, resolve = putter(session), resolver(session)
        while True:
            self._round(put, resolve)

    def _round(self, put: PeerSender, resolve: PeerSender) -> None:
        new = [self._new_id() for _ in range(PIPELINED)]
        self.tell(put, [(half_id, PUT, half(half_id, half_id.encode())) for half_id in new])
        stories = self._history.stories
        open_ids = self._history.undecided()[-200:]
        again = [self._chance.choice(open_ids) for _ in range(PIPELINED)] if open_ids else []
        asked = []
        for half_id in dict.fromkeys([*new[:4], *again]):
            if not stories[half_id].stored and self._chance.random() < 0.5:
                self.tell(put, [(half_id, PUT, half(half_id, half_id.encode()))])
            what = COMMIT if self._chance.random() < 0.6 else ROLLBACK
            asked.append((half_id, what, resolution(half_id, what)))
        self.tell(resolve, asked)

    def _new_id(self) -> str:
        self._numbered += 1
        return f"{self.name}-{self._numbered}"

    def tell(self, link: PeerSender, messages: list[tuple[str, str, bytes]]) -> None:
        """Send puts or resolutions, and record each answer, also that there was none."""
        connection = link.session.connection
        sent: dict[int, tuple[str, str]] = {}
        sent_at = time.monotonic()
        try:
            for half_id, what, payload in messages:
                connection.pump_until(lambda: link.may_send)
                sent[link.send(payload)] = (half_id, what)
            connection.pump_until(lambda: all(number in link.outcomes for number in sent))
        finally:
            for number, (half_id, what) in sent.items():
                answer = answer_of(link.outcomes.get(number))
                self._history.told(half_id, what, answer, sent_at, time.monotonic(), self.name)


def answer_of(outcome: object) -> str:
    """accepted, the condition of a rejection, or unknown."""
    if isinstance(outcome, Accepted):
        return ACCEPTED
    if isinstance(outcome, Rejected) and outcome.error is not None:
        return outcome.error.condition
    return UNKNOWN


class Halves(Workload):
    """Writers of half messages; in the end everything is decided, and the destination drained."""

    name = "half messages"
    points = points_of("apply", "checkpoint", "commit", "decide", "hold")

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.history = HalfHistory()
        self._chance = random.Random(f"{seed} halves")
        self._delivered: list[str] = []

    def made_clients(self, port: int, life: int, end: str) -> list[Writer]:
        """Some writers."""
        return [
            Writer(port, f"{life}-{each}", self.history, random.Random(self._chance.random()))
            for each in range(WRITERS)
        ]

    def recorded(self) -> int:
        """Answers, also those that were lost."""
        return len(self.history.records)

    def settle(self, port: int, life: int) -> None:
        """Decide what is open, and take everything that was committed."""
        last = Writer(port, "last", self.history, random.Random(0))
        with BlockingPeer.connect("127.0.0.1", port) as connection:
            session = connection.begin()
            put, resolve = putter(session), resolver(session)
            for half_id, story in self.history.stories.items():
                if not story.stored:
                    last.tell(put, [(half_id, PUT, half(half_id, half_id.encode()))])
                if not story.decided:
                    tried = {what for what, _ in story.resolutions}
                    order = (ROLLBACK, COMMIT) if tried == {ROLLBACK} else (COMMIT, ROLLBACK)
                    for what in order:
                        if not story.decided:
                            last.tell(resolve, [(half_id, what, resolution(half_id, what))])
        self._delivered = drain(port, DESTINATION)
        for half_id in self._delivered:
            self.history.record("", "delivered", half_id=half_id)

    def check(self, deaths: Sequence[Death], data: Path) -> list[str]:
        """All answers, and what was delivered."""
        return check_halves(self.history, self._delivered)

    def records(self) -> Iterable[Record]:
        """Each answer, and what was delivered."""
        return self.history.records

    def summary(self) -> str:
        """Half messages and answers."""
        history = self.history
        return (
            f"{len(history.stories):,} half messages, {history.count(ACCEPTED):,} accepted, "
            f"{history.count(UNKNOWN):,} answers lost, {len(self._delivered):,} delivered"
        )

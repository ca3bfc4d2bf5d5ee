"""`python -m tests.crash.half_kills --kills 200 --seed N`: kill -9 of the broker under three writers of half
messages, who put, commit and roll back at random, and repeat what they got no answer for.

The first lives end at the named points of a put, a decision and a checkpoint, one each; the others at random.
At the end everything that was put is decided, the destination is drained, and all answers are compared.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from amqp_broker.frames import Accepted, Message, Rejected
from amqp_broker.persistence.fault_points import POINTS
from tests.crash.broker_process import BrokerProcess, NotListening
from tests.crash.half_history import ACCEPTED, COMMIT, ROLLBACK, UNKNOWN, HalfHistory, check_halves
from tests.support.halves import half, putter, resolution, resolver
from tests.support.wire_client import ConnectionLost, PeerError, WireConnection, WireSender

WRITERS = 3
PIPELINED = 8
SECONDS_OF_TRAFFIC = 0.5
SECONDS_TO_A_POINT = 20.0
POINTS_OF_HALVES = tuple(
    point
    for point in sorted(POINTS)
    if point.split(".")[0] in ("hold", "decide", "apply", "commit", "checkpoint")
)


class Writer(Thread):
    """One client in one life of the broker."""

    def __init__(self, port: int, name: str, history: HalfHistory, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._name = name
        self._history = history
        self._chance = chance
        self._numbered = 0

    def run(self) -> None:
        """Until the broker is gone."""
        try:
            with WireConnection.connect("127.0.0.1", self._port, container_id=self._name) as connection:
                session = connection.begin()
                put, resolve = putter(session), resolver(session)
                while True:
                    self._round(put, resolve)
        except (ConnectionLost, PeerError, TimeoutError, OSError):
            return

    def _round(self, put: WireSender, resolve: WireSender) -> None:
        new = [self._new_id() for _ in range(PIPELINED)]
        self._tell(put, [(half_id, "put", half(half_id, half_id.encode())) for half_id in new])
        stories = self._history.stories
        open_ids = [each for each, story in list(stories.items()) if not story.decided][-200:]
        again = [self._chance.choice(open_ids) for _ in range(PIPELINED)] if open_ids else []
        asked = []
        for half_id in dict.fromkeys([*new[:4], *again]):
            if not stories[half_id].stored and self._chance.random() < 0.5:
                self._tell(put, [(half_id, "put", half(half_id, half_id.encode()))])
            what = COMMIT if self._chance.random() < 0.6 else ROLLBACK
            asked.append((half_id, what, resolution(half_id, what)))
        self._tell(resolve, asked)

    def _new_id(self) -> str:
        self._numbered += 1
        return f"{self._name}-{self._numbered}"

    def _tell(self, link: WireSender, messages: list[tuple[str, str, bytes]]) -> None:
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
                if what == "put":
                    self._history.put(half_id, answer, time.monotonic())
                else:
                    self._history.resolved(half_id, what, answer, sent_at)


def answer_of(outcome: object) -> str:
    """accepted, the condition of a rejection, or unknown."""
    if isinstance(outcome, Accepted):
        return ACCEPTED
    if isinstance(outcome, Rejected) and outcome.error is not None:
        return outcome.error.condition
    return UNKNOWN


def one_life(
    directory: Path, number: int, chance: random.Random, history: HalfHistory, point: str | None
) -> str:
    """Start, let the writers work, kill; a complaint or nothing."""
    environment = {} if point is None else {"AMQP_BROKER_FAULT_POINT": f"{point}:{chance.randint(2, 6)}"}
    with BrokerProcess(directory / "data", directory / "log", environment=environment) as broker:
        if point is None and chance.random() < 0.1:
            time.sleep(chance.uniform(0, 0.5))
            return ""
        try:
            port = broker.wait_until_listening()
        except NotListening as error:
            return "" if point is not None else f"life {number}: {error}"
        seeds = [random.Random(chance.random()) for _ in range(WRITERS)]
        writers = [Writer(port, f"{number}-{each}", history, seeds[each]) for each in range(WRITERS)]
        for writer in writers:
            writer.start()
        if point is None:
            time.sleep(chance.uniform(0, SECONDS_OF_TRAFFIC))
            if broker.process.poll() is not None:
                return f"life {number} ended by itself: {broker.log_tail()}"
        else:
            deadline = time.monotonic() + SECONDS_TO_A_POINT
            while broker.process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            if broker.process.poll() is None:
                return f"the point {point} was not reached within {SECONDS_TO_A_POINT:.0f} s"
        broker.kill()
        for writer in writers:
            writer.join()
    return ""


def settle_all(directory: Path, history: HalfHistory) -> list[str]:
    """The last life: decide what is open, and take everything that was committed."""
    with BrokerProcess(directory / "data", directory / "log") as broker:
        port = broker.wait_until_listening()
        last = Writer(port, "last", history, random.Random(0))
        with WireConnection.connect("127.0.0.1", port) as connection:
            session = connection.begin()
            put, resolve = putter(session), resolver(session)
            for half_id, story in history.stories.items():
                if not story.stored:
                    last._tell(put, [(half_id, "put", half(half_id, half_id.encode()))])
                if not story.decided:
                    tried = {what for what, _ in story.resolutions}
                    order = (ROLLBACK, COMMIT) if tried == {ROLLBACK} else (COMMIT, ROLLBACK)
                    for what in order:
                        if not story.decided:
                            last._tell(resolve, [(half_id, what, resolution(half_id, what))])
            receiver = session.attach_receiver("drain", "q")
            delivered: list[str] = []
            while True:
                receiver.flow(500, drain=True)
                connection.pump_until(lambda: receiver.credit == 0)
                taken = [receiver.deliveries.popleft() for _ in range(len(receiver.deliveries))]
                if not taken:
                    return delivered
                receiver.settle(taken, Accepted())
                delivered += [
                    bytes(Message(each.payload).body_sections()[0].value).decode() for each in taken
                ]


def run(kills: int, seed: int, points: tuple[str, ...] = POINTS_OF_HALVES, *, show: bool = True) -> list[str]:
    """The complaints after one kill at each of `points` and `kills` in all."""
    chance = random.Random(seed)
    history = HalfHistory()
    complaints: list[str] = []
    with TemporaryDirectory() as name:
        directory = Path(name)
        plan: list[str | None] = [*points, *[None] * max(0, kills - len(points))]
        for number, point in enumerate(plan):
            complaint = one_life(directory, number, chance, history, point)
            complaints += [complaint] if complaint else []
            if show and number % 10 == 9:
                print(f"{number + 1} kills, {len(history.stories)} half messages", file=sys.stderr)
        delivered = settle_all(directory, history)
    complaints += check_halves(history, delivered)
    if show:
        print(
            f"{len(plan)} kills, {len(history.stories)} half messages, {history.count(ACCEPTED)} accepted, "
            f"{history.count(UNKNOWN)} answers lost, {len(delivered)} delivered: {len(complaints)} complaints"
        )
    return complaints


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="kill -9 under writers of half messages")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    complaints = run(options.kills, options.seed)
    for complaint in complaints[:40]:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Three producers of half-message sets, who stage, seal, void and commit epochs over the blocking client.

One point is their own: all sets are sealed and none is committed. In its next life each producer asks what
became of its last epoch, and commits the same sets again, or stages new ones. At the end both destinations
are drained: every epoch is wholly there, once and in order, or wholly absent, as its decision says.

One producer's sets are prepared, for a coordinator that is elsewhere: nobody else ends them, in any life.
Another one's epochs have a set of another store each, which is enlisted before the commit and stands in the
decision.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

from attrs import evolve

from amqp_broker.client import BlockingConnection, ClientError, ConnectFailed, Gone, connect
from amqp_broker.frames import Ulong, encode_message
from amqp_broker.pipeline.set_client import (
    EpochDecided,
    EpochStatus,
    SealedSet,
    SetClient,
    SetDecided,
    SetRefused,
)
from amqp_broker.testing.blocking_peer import PATIENCE_S
from tests.crash.deaths import Death, check_deaths, points_of
from tests.crash.evidence import Record
from tests.crash.set_history import Attempt, EpochStory, SetHistory, Winners
from tests.crash.workload import LivingClient, Workload

GROUP = "g"
PRODUCERS = ("p0", "p1", "p2")
DESTINATIONS = ("q0", "q1")
SEALED = "sealed"
WAYS = ("move", "epoch")
COORDINATOR = "1f6e0a52-2c52-4e50-8c0c-7f3b6a4d9e01"
STORE = "1f6e0a52-2c52-4e50-8c0c-7f3b6a4d9e02"
FAR = "far-"  # what the sets of another store begin with


class BrokerGone(Exception):
    """The broker is gone, or is about to be."""


class Life:
    """One run of the broker: its number, and how it is to end."""

    def __init__(self, number: int, point: str) -> None:
        self.number = number
        self.point = point
        self.sealed = Event()
        self.killed = Event()

    def before_commit(self) -> None:
        """All sets of an epoch are sealed. Raises BrokerGone where this is where the life ends."""
        if self.point == SEALED:
            self.sealed.set()
            self.killed.wait()
            raise BrokerGone


class PreparingClient(SetClient):
    """Its sets have a coordinator elsewhere, whose words it brings."""

    def _tell(self, subject: str, body: dict[str, Any]) -> None:
        super()._tell(subject, {**body, "coordinator": COORDINATOR})


class EnlistingClient(SetClient):
    """With each epoch a set wins whose messages are elsewhere."""

    def commit_epoch(
        self, producer: str, epoch: int, winners: Sequence[SealedSet], *, coordinator: str = ""
    ) -> None:
        """Enlists one more before."""
        far = {**SealedSet(f"{FAR}{uuid4()}", 3, 33).described(), "store": STORE}
        try:
            self._tell("seal", {"producer": producer, "epoch": Ulong(epoch), **far})
        except EpochDecided:
            super().commit_epoch(producer, epoch, winners)
            return
        sets = [far, *[one.described() for one in winners]]
        self._tell("commit-epoch", {"producer": producer, "epoch": Ulong(epoch), "sets": sets})

    def status(self, producer: str, epoch: int | None = None) -> EpochStatus:
        """Without the one that is elsewhere, which has to be there. Raises SetRefused."""
        found = super().status(producer, epoch)
        far = [one for one in found.winners if one.set_id.startswith(FAR)]
        if found.decided and [(one.count, one.checksum) for one in far] != [(3, 33)]:
            raise SetRefused(f"epoch {epoch} was decided without the set of another store: {found}")
        return evolve(found, winners=tuple(one for one in found.winners if one not in far))


CLIENTS: dict[str, type[SetClient]] = {"p1": EnlistingClient, "p2": PreparingClient}


class Producer(LivingClient):
    """One producer in one life of the broker."""

    def __init__(self, port: int, name: str, history: SetHistory, chance: random.Random, life: Life) -> None:
        super().__init__(name, port)
        self._history = history
        self._chance = chance
        self._life = life
        self._numbered = 0

    def connect_and_drive(self) -> None:
        """Epoch by epoch."""
        try:
            with connect_to(self.port, self.name) as connection:
                self._sets = CLIENTS.get(self.name, SetClient)(connection, GROUP)
                while True:
                    self._epoch(self._history.current(self.name))
        except BrokerGone:
            return
        except (Gone, ConnectFailed) as error:
            if error.error is not None:  # the broker ended it, and had something to say
                raise

    def ask_once(self) -> None:
        """What became of the last epoch."""
        with connect_to(self.port, self.name) as connection:
            self._sets = CLIENTS.get(self.name, SetClient)(connection, GROUP)
            self._ask(self._history.current(self.name))

    def _epoch(self, story: EpochStory) -> None:
        attempt = self._history.attempts[self.name]
        if story.possible or attempt is not None:
            self._ask(story)
            if story.decided is not None:
                self._look_back(story)
                self._history.next_epoch(self.name, self._chance.choice((1, 1, 1, 7)))
                return
        if attempt is None or attempt.voided or self._chance.random() < 0.5:
            if attempt is not None and self._chance.random() < 0.5:
                attempt.voided = True
                self._history.record(self.name, "void", epoch=story.epoch, sets=attempt.winners)
                self._sets.void(self.name, story.epoch, [set_id for set_id, _, _ in attempt.winners])
            attempt = self._stage(story)
        self._life.before_commit()
        self._commit(story, attempt)

    def _ask(self, story: EpochStory) -> None:
        status = self._sets.status(self.name, story.epoch)
        winners = tuple((one.set_id, one.count, one.checksum) for one in status.winners)
        self._history.told(story, winners if status.decided else None)

    def _stage(self, story: EpochStory) -> Attempt:
        """Some sets, sealed; and one that loses."""
        sealed = [self._staged_set(story) for _ in range(self._chance.randint(0, 3))]
        loser = self._staged_set(story, seal=self._chance.random() < 0.5)
        assert loser not in sealed
        self._chance.shuffle(sealed)
        attempt = Attempt(tuple((one.set_id, one.count, one.checksum) for one in sealed))
        self._history.attempts[self.name] = attempt
        return attempt

    def _staged_set(self, story: EpochStory, *, seal: bool = True) -> SealedSet:
        self._numbered += 1
        set_id = f"{self.name}-{self._life.number}-{self._numbered}"
        rows = self._history.rows.setdefault(set_id, {})
        count = checksum = 0
        for destination in self._chance.sample(DESTINATIONS, self._chance.randint(1, 2)):
            staging = self._sets.stage(self.name, story.epoch, set_id, destination)
            staged = rows[destination] = []
            for _ in range(self._chance.randint(1, 3)):
                new = [
                    f"{self.name}/{story.epoch}/{set_id}/{destination}/{len(staged) + at}"
                    for at in range(self._chance.randint(1, 40))
                ]
                staging.send([b""] * len(new), [encode_message(body=row.encode()) for row in new])
                staged += new
            count += staging.count
            checksum = (checksum + staging.checksum) % (1 << 64)
            staging.close()
        sealed = SealedSet(set_id, count, checksum)
        told = {"set": set_id, "count": count, "seal": seal, "rows": rows}
        self._history.record(self.name, "staged", epoch=story.epoch, **told)
        if seal:
            self._sets.seal(self.name, story.epoch, sealed)
        return sealed

    def _commit(self, story: EpochStory, attempt: Attempt) -> None:
        self._history.committing(story, attempt.winners, self._life.number)
        try:
            self._sets.commit_epoch(self.name, story.epoch, sealed_sets(attempt.winners))
        except SetRefused as error:
            self._history.refused(story, str(error))
            self._history.attempts[self.name] = None
        except ClientError:
            self._history.lost()
            raise
        else:
            self._history.committed(story)

    def _look_back(self, story: EpochStory) -> None:
        """Nothing that comes later changes a decision."""
        which = self._chance.randrange(6)
        winners = story.decided or ()
        if which == 0:
            self._repeat(story.epoch, sealed_sets(winners))
        elif which == 1 and winners:
            set_ids = [set_id for set_id, _, _ in winners]
            self._refused(SetDecided, lambda: self._sets.void(self.name, story.epoch, set_ids))
        elif which == 2:
            self._refused(
                EpochDecided, lambda: self._sets.stage(self.name, story.epoch, "late", DESTINATIONS[0])
            )
        if which < 3:
            self._history.repeats += 1
            self._ask(story)

    def _repeat(self, epoch: int, winners: list[SealedSet]) -> None:
        """Nothing happens, also with other sets; who brings a coordinator's vote is told that it was
        another.
        """
        if not isinstance(self._sets, PreparingClient):
            self._sets.commit_epoch(self.name, epoch, [])
            return
        self._sets.commit_epoch(self.name, epoch, winners)
        if winners:
            self._refused(SetDecided, lambda: self._sets.commit_epoch(self.name, epoch, []))

    def _refused(self, kind: type[SetRefused], do: Callable[[], object]) -> None:
        try:
            do()
        except kind:
            return
        self._history.complain(f"{self.name}: expected {kind.__name__}, and it was accepted")


def sealed_sets(winners: Winners) -> list[SealedSet]:
    """As the client names them."""
    return [SealedSet(*winner) for winner in winners]


class Sets(Workload):
    """Producers of sets; in the end each of them asks what became of its last epoch, and all is taken."""

    name = "sets of half messages"
    points = (SEALED, *points_of(*WAYS, "apply", "commit"))

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.history = SetHistory(PRODUCERS)
        self.complaints = self.history.complaints
        self._chance = random.Random(f"{seed} sets")
        self._life = Life(0, "")
        self._delivered: dict[str, list[str]] = {}

    def made_clients(self, port: int, life: int, end: str) -> list[Producer]:
        """The producers go on where they were."""
        self._life = Life(life, end)
        return [
            Producer(port, name, self.history, random.Random(self._chance.random()), self._life)
            for name in PRODUCERS
        ]

    def recorded(self) -> int:
        """Requests and answers."""
        return len(self.history.records)

    def reached(self, end: str) -> bool:
        """Whether all sets of an epoch are sealed, in a life that ends then."""
        return end == SEALED and self._life.sealed.is_set()

    def join(self) -> None:
        """Who waits for the end of the broker waits no more."""
        self._life.killed.set()
        super().join()

    def settle(self, port: int, life: int) -> None:
        """Ask what became of the last epochs, and take everything."""
        for name in PRODUCERS:
            Producer(port, name, self.history, random.Random(0), Life(-1, "")).ask_once()
        with connect_to(port, "drain") as connection:
            for destination in DESTINATIONS:
                rows = self._delivered[destination] = []
                receiver = connection.open_receiver(destination, credit=1_000)
                while (received := receiver.receive_now()) is not None:
                    rows.append(bytes(received.body).decode())
                    receiver.accept(received)
                self.history.record("", "delivered", destination=destination, rows=rows)

    def check(self, deaths: Sequence[Death], data: Path) -> list[str]:
        """Each epoch wholly or not at all, and what the deaths say of the commits on their way."""
        return self.history.check(self._delivered) + check_deaths(deaths, WAYS, self.history.fates())

    def records(self) -> Iterable[Record]:
        """What each producer said and was told, and what was delivered."""
        return self.history.records

    def summary(self) -> str:
        """Sets, epochs and answers."""
        history = self.history
        rows = sum(map(len, self._delivered.values()))
        epochs = sum(story.decided is not None for each in history.stories.values() for story in each)
        return (
            f"{len(history.rows):,} sets, {epochs:,} epochs decided, {history.lost_answers} answers to a "
            f"commit lost, {history.repeats} later requests, {rows:,} rows delivered"
        )


def connect_to(port: int, container_id: str) -> BlockingConnection:
    """With the patience of all clients."""
    return connect(
        f"amqp://127.0.0.1:{port}", container_id=container_id, timeout_s=PATIENCE_S, open_timeout_s=PATIENCE_S
    )

"""The model of sharded sets with real brokers in the place of its machines: what is proved of the rules holds
for what keeps them. They are restarted now and then, on the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from amqp_broker.broker import Broker
from amqp_broker.coordinator import Resolver
from amqp_broker.frames import Rejected, plain_value
from amqp_broker.testing import running_broker
from amqp_broker.testing.peer import PeerError
from tests.pipeline.shard_model import BROKERS, COORDINATOR, EPOCHS, Name, Row, Rules, Staged, Status, World
from tests.pipeline.shard_model import run as in_the_model
from tests.support.broker_clients import bodies, counts, error_of, receive, session_to
from tests.support.half_sets import SetClient as WireSets
from tests.support.half_sets import (
    checksum,
    commit_of,
    half_sets,
    row,
    seal_of,
    stage,
    stager,
    void_of,
)
from tests.support.halves import tell
from tests.support.jumping_broker import on_disk

WORDS_OF_A_LIFE = 90
ANSWERS = {
    "half:decided": "decided",
    "half:stale-epoch": "stale",
    "half:unknown-set": "unknown",
    "half:conflict": "conflict",
    "half:prepared": "prepared",
    "half:voided": "voided",
}
CLOSED_BY_THE_BROKER = Rules(enlist_once=False, vote_prepared=False)
"""What clients may leave out where the coordinator keeps its word."""


class Server:
    """One broker of several runs, on disk, with a connection to it."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self.config = on_disk(folder / str(number))
        self.words = 0
        self._start()
        self.store = str(self.client.status()["store_id"])

    def _start(self) -> None:
        self._life = ExitStack()
        self.broker = self._life.enter_context(running_broker(self.config))
        self.client = WireSets(self._life.enter_context(session_to(self.broker)))

    def stop(self) -> None:
        """For good."""
        self._life.close()

    def a_word_more(self) -> None:
        """After so many it starts again."""
        self.words += 1
        if self.words % WORDS_OF_A_LIFE == 0:
            self.stop()
            self._start()


class OnBroker:
    """A machine of the model: the words of one producer to one broker."""

    def __init__(self, server: Server, stores: Sequence[str], producer: str, rows: dict[Name, Any]) -> None:
        self.number = server.number
        self._server = server
        self._stores = stores
        self._producer = producer
        self._rows = rows

    def _tell(self, what: Callable[..., bytes], *arguments: Any, **named: Any) -> Any:
        asked = what(*arguments, producer=self._producer, **named)
        outcome = tell(self._server.client.resolve, asked)
        self._server.a_word_more()
        if not isinstance(outcome, Rejected):
            return ""
        error = error_of(outcome)
        if error.condition == "half:undecided":
            return plain_value(error.info)["half_epochs"]
        return ANSWERS[str(error.condition)]

    @property
    def _home(self) -> dict[str, str]:
        return {"coordinator": self._stores[COORDINATOR]}

    def _named(self, name: Name) -> tuple[str, int, int]:
        payloads = self._rows[name]
        return set_id_of(name), len(payloads), checksum(*payloads)

    def stage(self, epoch: int, name: Name, rows: tuple[Row, ...]) -> str:
        """Messages of a new set."""
        payloads = self._rows[name] = [row(b"%d/%d" % each) for each in rows]
        session = self._server.client.session
        try:
            link = stager(
                session, set_id_of(name), epoch=epoch, producer=self._producer, destination=self._producer
            )
        except PeerError as refused:
            assert refused.error is not None, refused
            return ANSWERS[str(refused.error.condition)]
        stage(link, *payloads)
        link.detach()
        return ""

    def enlist(self, epoch: int, name: Name) -> str:
        """The coordinator: a sealed set whose messages are elsewhere."""
        return str(self._tell(seal_of, *self._named(name), epoch=epoch, store=self._stores[name[1]]))

    def seal(self, epoch: int, name: Name, state: str) -> str:
        """Sealed, or prepared where the coordinator is another."""
        assert (state == "prepared") == (self.number != COORDINATOR)
        return str(self._tell(seal_of, *self._named(name), epoch=epoch, **self._home))

    def commit(self, epoch: int, names: tuple[Name, ...]) -> str:
        """The coordinator decides."""
        winners = [(*self._named(name), self._stores[name[1]]) for name in names]
        return str(self._tell(commit_of, *winners, epoch=epoch))

    def apply(self, epoch: int, names: tuple[Name, ...]) -> Any:
        """A shard does what the coordinator decided; the epochs that have to be settled before."""
        return self._tell(commit_of, *[self._named(name) for name in names], epoch=epoch, **self._home)

    def void(self, epoch: int, name: Name, voted: bool) -> str:
        """A set is not wanted; at the coordinator, of a set that is elsewhere, a vote."""
        elsewhere: dict[str, str] = {}
        if self.number == COORDINATOR and name[1] != COORDINATOR:
            elsewhere = {"store": self._stores[name[1]]}
        elif voted:
            elsewhere = self._home
        return str(self._tell(void_of, set_id_of(name), epoch=epoch, **elsewhere))

    def status(self, epoch: int) -> Status:
        """What is known."""
        found = self._server.client.status(epoch, self._producer)
        prepared = [name_of(each["set"]) for each in found["sets"] if each["state"] == "prepared"]
        winners = tuple(name_of(each["set"]) for each in found["winners"])
        return Status(found["decided"], winners, tuple(prepared))

    def reaches_its_age(self, name: Name) -> None:
        """What its clock would do."""

        def age(running: Broker) -> None:
            service = running.features.half_sets
            staged = service.known("g", self._producer).sets.get(set_id_of(name))
            if staged is not None:
                service.void(staged, Resolver.DEADLINE, "maximum age", lambda outcome: None)

        self._server.broker.call(age)

    @property
    def sets(self) -> dict[Name, Staged]:
        """What is not decided."""
        return {
            name_of(each.set_id): Staged(each.epoch, (), each.state)
            for each in half_sets(self._server.broker)
            if each.producer == self._producer and each.state != "voided"
        }

    @property
    def decisions(self) -> dict[int, tuple[Name, ...]]:
        """Of all epochs."""
        found = {epoch: self.status(epoch) for epoch in range(EPOCHS)}
        return {epoch: each.winners for epoch, each in found.items() if each.decided}

    @property
    def visible(self) -> list[Row]:
        """What became available, which nobody has taken."""
        if not self.decisions:
            return []
        session = self._server.client.session
        receiver = session.attach_receiver(f"all-{self._producer}", self._producer, credit=1_000)
        count, _ = counts(self._server.broker, self._producer)
        rows = [body.split(b"/") for body in bodies(receive(receiver, count))]
        return [(int(epoch), int(number)) for epoch, number in rows]


def set_id_of(name: Name) -> str:
    """Its number, and the broker."""
    return f"s{name[0]}.{name[1]}"


def name_of(set_id: str) -> Name:
    """The same, read back."""
    number, broker = set_id[1:].split(".")
    return int(number), int(broker)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """A coordinator and two shards."""
    folder = tmp_path_factory.mktemp("brokers")
    running = [Server(number, folder) for number in range(BROKERS)]
    yield running
    for each in running:
        each.stop()


def run(servers: Sequence[Server], seed: int, rules: Rules) -> list[str]:
    """One run of the model on these; what is wrong."""
    world: Any = World(seed, rules)
    stores = [each.store for each in servers]
    rows: dict[Name, Any] = {}
    world.brokers = [OnBroker(each, stores, f"p{seed}", rows) for each in servers]
    found: list[str] = world.live()
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_brokers_keep_the_rules(servers: list[Server], seed: int) -> None:
    """Each row of each decided epoch once, and nothing is left prepared."""
    assert run(servers, seed, Rules()) == []


@pytest.mark.parametrize("seed", [98, 911, 1617, 2270])
def test_homes_word_needs_no_discipline_of_clients(servers: list[Server], seed: int) -> None:
    """Runs in which something goes wrong where the coordinator keeps no word: a set is enlisted after the
    vote.
    """
    assert in_the_model(seed, CLOSED_BY_THE_BROKER)
    assert run(servers, seed, CLOSED_BY_THE_BROKER) == []

"""Random dialogues about sets against a model of docs/protocols/sets.md that knows nothing of the broker."""

from __future__ import annotations

import random
from pathlib import Path

import attrs
import pytest

from amqp_broker.frames import Accepted, Rejected
from amqp_broker.testing.peer import PeerError
from tests.support.broker_clients import bodies, condition_of, counts, receive, session_to
from tests.support.half_set_groups import nothing_is_held
from tests.support.half_sets import SetClient, checksum, row
from tests.support.jumping_broker import JumpingBroker, on_disk

STEPS = 120
EPOCHS, SETS = 4, 4
QUEUES = ("q", "r")
FULL = "amqp:resource-limit-exceeded"


@attrs.define
class ModelSet:
    """What is staged: (queue, body) in order."""

    epoch: int
    staged: list[tuple[str, bytes]] = attrs.field(factory=list)
    sealed: bool = False

    def winner(self, name: str) -> tuple[str, int, int]:
        """As a commit names it."""
        return name, len(self.staged), checksum(*[row(body) for _, body in self.staged])


class Model:
    """The page as sentences."""

    def __init__(self) -> None:
        self.sets: dict[str, ModelSet] = {}
        self.decided: dict[int, list[str]] = {}
        self.queues: dict[str, list[bytes]] = {name: [] for name in QUEUES}

    def behind(self, epoch: int) -> str:
        """Why an epoch takes nothing any more, or nothing."""
        if epoch in self.decided:
            return "half:decided"
        return "half:stale-epoch" if epoch < max(self.decided, default=0) else ""

    def stage(self, name: str, epoch: int, queue: str, body: bytes) -> str:
        """Why a message can't be staged, or nothing: it is."""
        found = self.sets.get(name)
        if why := self.behind(epoch):
            return why
        if found is not None and found.epoch != epoch:
            return "amqp:not-allowed"
        if found is not None and found.sealed:
            return "half:sealed"
        self.sets.setdefault(name, ModelSet(epoch)).staged.append((queue, body))
        return ""

    def seal(self, name: str, epoch: int, told: tuple[str, int, int]) -> str:
        """The condition, or nothing."""
        found = self.sets.get(name)
        if why := self.behind(epoch):
            return why
        if found is None or found.epoch != epoch:
            return "half:unknown-set"
        if told != found.winner(name):
            return "half:mismatch"
        found.sealed = True
        return ""

    def commit(self, epoch: int, named: list[tuple[str, int, int]]) -> str:
        """The condition, or nothing."""
        if why := self.behind(epoch):
            return "" if why == "half:decided" else why
        for told in named:
            found = self.sets.get(told[0])
            if found is None or found.epoch != epoch:
                return "half:unknown-set"
            if not found.sealed:
                return "half:unsealed"
            if told != found.winner(told[0]):
                return "half:mismatch"
        for told in named:
            for queue in QUEUES:
                of_queue = [body for name, body in self.sets[told[0]].staged if name == queue]
                self.queues[queue].extend(of_queue)
        self.decided[epoch] = [told[0] for told in named]
        self.sets = {name: found for name, found in self.sets.items() if found.epoch > epoch}
        return ""

    def void(self, names: list[str]) -> str:
        """The condition, or nothing."""
        won = {name for winners in self.decided.values() for name in winners}
        if any(name in won and name not in self.sets for name in names):
            return "half:conflict"
        for name in names:
            self.sets.pop(name, None)
        return ""


class Dialogue:
    """Random requests to a broker, each compared with the model's answer."""

    def __init__(self, broker: JumpingBroker, model: Model, chance: random.Random, number: int) -> None:
        self.broker = broker
        self.model = model
        self.chance = chance
        self.number = number

    def step(self, client: SetClient) -> None:
        """One request."""
        kinds = (self._stage, self._stage, self._stage, self._seal, self._seal, self._commit, self._void)
        self.chance.choice(kinds)(client)

    def _expect(self, what: str, expected: str, outcome: object) -> None:
        got = "" if isinstance(outcome, Accepted) else condition_of(outcome)
        assert got == expected, f"step {self.number}, {what}: expected {expected!r}, got {got!r}"

    def _name(self, epoch: int) -> str:
        return f"{epoch if self.chance.random() < 0.9 else 1}-{self.chance.randrange(SETS)}"

    def _epoch(self) -> int:
        return 1 + max(self.model.decided, default=0) + self.chance.randrange(-1, EPOCHS - 1)

    def _stage(self, client: SetClient) -> None:
        epoch, queue = max(1, self._epoch()), self.chance.choice(QUEUES)
        name, body = self._name(epoch), b"%d" % self.number
        expected = self.model.stage(name, epoch, queue, body)
        if not expected:
            client.staged(name, row(body), epoch=epoch, destination=queue).detach()
            return
        with session_to(self.broker, "refused") as session, pytest.raises(PeerError, match=expected):
            SetClient(session).staged(name, row(body), epoch=epoch, destination=queue)

    def _seal(self, client: SetClient) -> None:
        name = self.chance.choice([*self.model.sets, "never"])
        found = self.model.sets.get(name, ModelSet(max(1, self._epoch())))
        epoch = found.epoch if self.chance.random() < 0.9 else max(1, self._epoch())
        rows = [row(body) for _, body in found.staged][: None if self.chance.random() < 0.8 else 1]
        expected = self.model.seal(name, epoch, (name, len(rows), checksum(*rows)))
        self._expect(f"seal {name}", expected, client.seal(name, *rows, epoch=epoch))

    def _commit(self, client: SetClient) -> None:
        epoch = max(1, self._epoch())
        there = [name for name, found in self.model.sets.items() if found.epoch == epoch]
        if self.chance.random() < 0.7:
            there = [name for name in there if self.model.sets[name].sealed]
        names = self.chance.sample(there, self.chance.randrange(len(there) + 1))
        if self.chance.random() < 0.1:
            names.append("never")
        named = [self.model.sets.get(name, ModelSet(epoch)).winner(name) for name in names]
        if named and self.chance.random() < 0.1:
            named[0] = (named[0][0], named[0][1], named[0][2] ^ 1)
        if self.chance.random() < 0.1:
            self.broker.faults.refuse_commit()
            if not self._refuses(client, epoch, named):
                return
        expected = self.model.commit(epoch, named)
        self._expect(f"commit {epoch} {names}", expected, client.commit(*named, epoch=epoch))

    def _refuses(self, client: SetClient, epoch: int, named: list[tuple[str, int, int]]) -> bool:
        """Commit with a full disk: nothing happens, unless nothing had to be stored. True: do it again."""
        outcome = client.commit(*named, epoch=epoch)
        self.broker.faults._commit_errors.clear()
        if isinstance(outcome, Rejected) and condition_of(outcome) == FULL:
            return True
        self._expect(f"commit {epoch}", self.model.commit(epoch, named), outcome)
        return False

    def _void(self, client: SetClient) -> None:
        won = [name for winners in self.model.decided.values() for name in winners]
        known = [*self.model.sets, *won, "never"]
        names = self.chance.sample(known, min(len(known), self.chance.randrange(3)))
        self._expect(f"void {names}", self.model.void(names), client.void(*names))

    def compare(self, client: SetClient) -> None:
        """What is staged and how much is in the queues."""
        told = {each.pop("set"): each for each in client.status()["sets"]}
        assert told == {
            name: {"epoch": it.epoch, "state": "sealed" if it.sealed else "open", "count": len(it.staged)}
            for name, it in self.model.sets.items()
        }
        for queue in QUEUES:
            if self.model.queues[queue]:
                assert counts(self.broker, queue)[0] == len(self.model.queues[queue])
        nothing_is_held(self.broker)


@pytest.mark.parametrize("seed", range(4))
def test_random_dialogues(tmp_path: Path, seed: int) -> None:
    """With restarts in between; at the end each queue has what the decisions say, in that order."""
    chance = random.Random(seed)
    config, model = on_disk(tmp_path), Model()
    broker = JumpingBroker(config)
    for life in range(3):
        if life:
            broker = JumpingBroker(config, after=broker)
        dialogue = Dialogue(broker, model, chance, life * STEPS)
        try:
            with session_to(broker) as session:
                client = SetClient(session)
                for _ in range(STEPS // 3):
                    dialogue.number += 1
                    dialogue.step(client)
                dialogue.compare(client)
                if life == 2:
                    for queue, expected in model.queues.items():
                        receiver = session.attach_receiver(f"r-{queue}", queue, credit=len(expected) + 1)
                        assert bodies(receive(receiver, len(expected))) == expected
        finally:
            broker.stop()
    assert len(model.decided) > 2, "a dialogue in which something is decided"

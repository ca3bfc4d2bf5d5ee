"""What was posted, alone and in transactions, and what its senders were told of it, in one order."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from amqp_broker.frames import Accepted
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.peer import PeerSender
from tests.crash.evidence import Record
from tests.crash.history import Notes
from tests.crash.traffic import TICK, Unexpected
from tests.crash.workload import LivingClient, Workload
from tests.promises.fates import Fate
from tests.support.controllers import Controller

WINDOW: Final = 30
SHARE_OF_TRANSACTIONS: Final = 0.15
SHARE_OF_ROLLBACKS: Final = 0.2


@dataclass(slots=True, eq=False)
class Request:
    """What was posted at once: rows by their address. `sent` and `told` are places in the order of all that
    happened; `told` is at most the end of its life.
    """

    name: str
    line: str
    life: int
    sent: int
    rows: dict[str, list[str]]
    transaction: bool = False
    told: int | None = None
    fate: Fate = Fate.UNKNOWN


@dataclass(slots=True)
class Story:
    """What happened, in one order."""

    notes: Notes = field(default_factory=Notes)
    requests: list[Request] = field(default_factory=list)
    clock: Iterator[int] = field(default_factory=itertools.count)

    def life_is_over(self) -> None:
        """What was not told by now has happened by now, if it does."""
        now = next(self.clock)
        for request in reversed(self.requests):
            if request.told is None:
                request.told = now

    def post(self, request: Request) -> Request:
        """It is about to be sent."""
        self.requests.append(request)
        self.notes.record(request.line, "posted", name=request.name, rows=request.rows)
        return request

    def answer(self, request: Request, fate: Fate) -> None:
        """Its sender was told."""
        request.told, request.fate = next(self.clock), fate
        self.notes.record(request.line, "told", name=request.name, fate=fate.value)


class PostingClient(LivingClient):
    """Posts to each of the addresses, up to a window, what `encode` makes of the name of a row. Its
    transactions, of posts to all of them, begin when nothing is on its way.
    """

    def __init__(
        self, name: str, port: int, life: int, addresses: Sequence[str], story: Story, chance: random.Random,
        encode: Callable[[str], bytes],
    ) -> None:  # fmt: skip
        super().__init__(name, port)
        self.addresses = addresses
        self.encode = encode
        self.life = life
        self.story = story
        self.chance = chance
        self.number = 0
        self.waiting: dict[int, Request] = {}

    def drive(self, connection: BlockingPeer) -> None:
        """Until the broker is gone."""
        session = connection.begin()
        controller = Controller(session)
        senders = {address: session.attach_sender(f"to {address}", address) for address in self.addresses}
        while True:
            if self.chance.random() < SHARE_OF_TRANSACTIONS:
                connection.pump_until(lambda: not self._outcomes(senders.values()))
                self._transaction(controller, senders)
            else:
                address = self.chance.choice(self.addresses)
                self._post(address, senders[address])
            connection.pump(TICK)
            self._outcomes(senders.values())

    def _request(self, rows: dict[str, list[str]], transaction: bool = False) -> Request:
        name = next(row for some in rows.values() for row in some)
        made = Request(name, self.name, self.life, next(self.story.clock), rows, transaction)
        return self.story.post(made)

    def _row(self) -> str:
        self.number += 1
        return f"{self.name} {self.number}"

    def _post(self, address: str, sender: PeerSender) -> None:
        for _ in range(self.chance.choice((1, 2, 5, 10))):
            if len(self.waiting) < WINDOW and sender.may_send:
                request = self._request({address: [self._row()]})
                self.waiting[sender.send(self.encode(request.name))] = request

    def _outcomes(self, senders: Iterable[PeerSender]) -> int:
        """How many have none yet."""
        for sender in senders:
            while sender.settled:
                number = sender.settled.popleft()
                outcome = sender.outcomes.pop(number)
                if number in self.waiting:
                    self.story.answer(self.waiting.pop(number), _fate_of(outcome, sender.address))
        return len(self.waiting)

    def _transaction(self, controller: Controller, senders: dict[str, PeerSender]) -> None:
        txn_id = controller.declare()
        rows: dict[str, list[str]] = {}
        for address in self.addresses:
            rows[address] = [self._row() for _ in range(self.chance.randint(1, 4))]
        fails = self.chance.random() < SHARE_OF_ROLLBACKS
        request = self._request(rows, transaction=True)
        for address, some in rows.items():
            for row in some:
                _send(senders[address], self.encode(row), txn_id)
        if fails:
            request.fate = Fate.ABSENT
        outcome = controller.discharge(txn_id, fail=fails)
        fate = _fate_of(outcome, "the discharge")
        self.story.answer(request, Fate.ABSENT if fails else fate)


def _send(sender: PeerSender, payload: bytes, txn_id: bytes) -> None:
    sender.session.connection.pump_until(lambda: sender.may_send)
    sender.send(payload, txn_id=txn_id)


def _fate_of(outcome: object, what: str) -> Fate:
    if not isinstance(outcome, Accepted):
        raise Unexpected(f"{what} got the outcome {outcome!r}")
    return Fate.COMMITTED


def number_of(row: str) -> int:
    """The place of a row among those of its sender."""
    return int(row.rpartition(" ")[2])


def lost_transactions(requests: Iterable[Request], fates: dict[str, Fate]) -> dict[int, list[Fate]]:
    """By life, how those ended of which nobody was told."""
    lost: dict[int, list[Fate]] = defaultdict(list)
    for request in requests:
        if request.transaction and request.fate is Fate.UNKNOWN:
            lost[request.life].append(fates[request.name])
    return lost


class Posts(Workload):
    """Base: what its clients post and are told is one story."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.story = Story()

    def join(self) -> None:
        """What was on its way has ended with its life."""
        super().join()
        self.story.life_is_over()

    def finish(self, clients: Sequence[LivingClient]) -> None:
        """The last clients work until they have what they want, however long a backlog takes."""
        self.run(clients)
        for client in self.clients:
            client.join()
        self.join()

    def recorded(self) -> int:
        """What was sent and told."""
        return len(self.story.notes.records)

    def records(self) -> Iterable[Record]:
        """What each client did and was told."""
        return self.story.notes.records

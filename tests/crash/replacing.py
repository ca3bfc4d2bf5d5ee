"""Rings and queues of last values, over lives of brokers that end at any moment.

One client at a time posts to all of them, alone and in transactions, in an order that is known. Before it
posts it looks: each queue has to be as some end of the life before has left it, message by message. From one
queue a worker takes, gives back, and keeps: there no key has two values, nothing that was taken is there
again, and no older value is there unless the last one was taken, and a worker held the older one meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from amqp_broker.frames import Accepted, Header, Modified, Released, encode_message
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.peer import Delivery, PeerReceiver
from tests.crash.deaths import Death, check_deaths, points_of
from tests.crash.posts import PostingClient, Posts, Request, lost_transactions, number_of
from tests.crash.traffic import TICK
from tests.crash.workload import LivingClient
from tests.promises.delivered import shortened
from tests.promises.fates import Fate
from tests.support.broker_clients import body_of, browse

QUOTES: Final = "quotes"
TABLE: Final = "quotes.table"  # both a ring and last values
RING: Final = "ticks"
OCTETS: Final = "ticks.octets"
TAKEN: Final = "quotes.taken"
KEY: Final = "symbol"
KEYS: Final = 23
MOST_MESSAGES: Final = 12
MOST_OCTETS: Final = 1_500
CONFIGURATION: Final = f"""
[[queue]]
pattern = "quotes.**"
last_value_key = "{KEY}"
max_messages = 100_000
message_type = "normal"

[[queue]]
pattern = "{QUOTES}"
last_value_key = "{KEY}"
max_messages = 100_000
message_type = "normal"

[[queue]]
pattern = "{TABLE}"
last_value_key = "{KEY}"
ring_messages = {MOST_MESSAGES}
message_type = "normal"

[[queue]]
pattern = "{RING}"
ring_messages = {MOST_MESSAGES}
message_type = "normal"

[[queue]]
pattern = "{OCTETS}"
ring_bytes = {MOST_OCTETS}
message_type = "normal"
"""
ADDRESSES: Final = (QUOTES, TABLE, RING, OCTETS, TAKEN)  # the last one with a worker
CREDIT: Final = 20
SHARE_OF_KEPT: Final = 0.3
WAY: Final = "discharge"

State = tuple[str, ...]
"""The rows that wait, in their order."""


def key_of(row: str) -> str:
    """What a row is a value of: some have no key."""
    number = number_of(row)
    return f"k{number * 7 % KEYS}" if number % 50 else ""


def encode_value(row: str, durable: bool = True) -> bytes:
    """A durable message with its key, and more or fewer octets."""
    key = key_of(row)
    named = {KEY: key} if key else {"other": 1}
    body = row.ljust(20 + number_of(row) * 37 % 190).encode()
    header = Header(durable=True) if durable else None
    return encode_message(header=header, application_properties=named, body=body)


def _octets(rows: Iterable[str]) -> int:
    return sum(len(encode_value(row, durable=False)) for row in rows)


def after(address: str, state: State, row: str) -> State:
    """What waits when a row has come, and nobody takes."""
    rows = [*state]
    if address in (QUOTES, TABLE) and key_of(row):
        rows = [each for each in rows if key_of(each) != key_of(row)]
    rows.append(row)
    if address in (RING, TABLE):
        rows = rows[-MOST_MESSAGES:]
    while address == OCTETS and _octets(rows) > MOST_OCTETS:
        rows.pop(0)
    return tuple(rows)


def all_after(address: str, state: State, rows: Iterable[str]) -> State:
    """When several have come."""
    for row in rows:
        state = after(address, state, row)
    return state


class LookingClient(PostingClient):
    """Looks, then posts."""

    def __init__(self, workload: Replacing, port: int, life: int, chance: random.Random) -> None:
        super().__init__(f"v{life}", port, life, ADDRESSES, workload.story, chance, encode_value)
        self.workload = workload

    def drive(self, connection: BlockingPeer) -> None:
        """Until the broker is gone."""
        self.workload.look(connection)
        self.workload.looked.add(self.life)
        super().drive(connection)


class Worker(LivingClient):
    """Takes from the one queue; what it keeps goes back when its broker ends."""

    def __init__(self, workload: Replacing, port: int, life: int, chance: random.Random) -> None:
        super().__init__(f"takes {life}", port)
        self.workload = workload
        self.life = life
        self.chance = chance
        self.kept: list[Delivery] = []
        self.newest: dict[str, int] = {}
        self.waiting: dict[int, str] = {}

    def drive(self, connection: BlockingPeer) -> None:
        """Until the broker is gone. It begins when somebody has looked."""
        while self.life not in self.workload.looked:
            connection.pump(TICK)
        link = connection.begin().attach_receiver("takes", TAKEN, credit=CREDIT)
        while True:
            connection.pump(TICK)
            while link.deliveries:
                self._take(link, link.deliveries.popleft())
            if self.kept and self.chance.random() < SHARE_OF_KEPT:
                self._decide(link, self.kept.pop(self.chance.randrange(len(self.kept))))
            while link.confirmed:
                self.workload.confirmed.add(self.waiting.pop(link.confirmed.popleft()))
            if link.credit < CREDIT // 2:
                link.flow(CREDIT)

    def _take(self, link: PeerReceiver, delivery: Delivery) -> None:
        row = row_of(delivery)
        key, number = key_of(row), number_of(row)
        self.workload.came.add(row)
        self.workload.story.notes.record(self.name, "came", row=row)
        if row in self.workload.confirmed:
            self.workload.complaints.append(f"{TAKEN}: {row} came, and had been taken")
        mine = row.startswith(f"v{self.life} ")
        if key and mine:
            if number < self.newest.get(key, number):
                self.workload.complaints.append(f"{TAKEN}: {row} came after {self.newest[key]} of its key")
            self.newest[key] = number
        if self.chance.random() < SHARE_OF_KEPT:
            self.kept.append(delivery)
        else:
            self._decide(link, delivery)

    def _decide(self, link: PeerReceiver, delivery: Delivery) -> None:
        row, what = row_of(delivery), self.chance.random()
        if what < 0.5:
            self.workload.accepted.add(row)
            self.workload.story.notes.record(self.name, "accepted", row=row)
            self.waiting[delivery.delivery_id] = row
            link.settle(delivery, Accepted(), settled=False)
        else:
            outcome = Released() if what < 0.75 else Modified(delivery_failed=what < 0.8)
            self.workload.story.notes.record(self.name, "gave back", row=row)
            link.settle(delivery, outcome)


def row_of(delivery: Delivery) -> str:
    """What it is."""
    return body_of(delivery).decode().rstrip()


class Replacing(Posts):
    """A client that posts, and a worker."""

    name = "replacing"
    configuration = CONFIGURATION
    points = points_of(WAY, "commit")

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.looked: set[int] = set()
        self.states: dict[str, set[State]] = {address: {()} for address in ADDRESSES}
        self.folded = 0  # so many requests
        self.fates: dict[str, Fate] = {}
        self.came: set[str] = set()
        self.accepted: set[str] = set()
        self.confirmed: set[str] = set()

    def made_clients(self, port: int, life: int, end: str) -> list[LivingClient]:
        """Both."""
        chance = random.Random(f"{self.seed} {life}")
        post = LookingClient(self, port, life, random.Random(chance.random()))
        return [post, Worker(self, port, life, random.Random(chance.random()))]

    def look(self, connection: BlockingPeer) -> None:
        """All queues, with what may have come since the last look. A connection that ends changes nothing."""
        session = connection.begin()
        found = {}
        for address in ADDRESSES:
            link = browse(session, f"looks at {address}", address)
            link.drain_all(100_000)
            found[address] = tuple(row_of(each) for each in link.deliveries)
            link.detach()
        session.end()
        requests = self.story.requests[self.folded :]
        self.folded += len(requests)
        for address in ADDRESSES[:-1]:
            self._compare(address, found[address], requests)
        self._judge(requests, found)
        self._check_taken(found[TAKEN])

    def _compare(self, address: str, found: State, requests: Sequence[Request]) -> None:
        self.story.notes.record(address, "looked at", rows=found)
        possible = self.states[address]
        for request in requests:
            rows = request.rows.get(address, ())
            if request.fate is Fate.COMMITTED:
                possible = {all_after(address, state, rows) for state in possible}
        for state in [*possible]:
            for request in requests:
                if request.fate is Fate.UNKNOWN and (rows := request.rows.get(address, ())):
                    state = all_after(address, state, rows)
                    possible.add(state)
        if found not in possible:
            nearest = sorted(possible)[:1]
            self.complaints.append(f"{address} has {found}, and none of {len(possible)} ends has: {nearest}")
        self.states[address] = {found}

    def _judge(self, requests: Sequence[Request], found: dict[str, State]) -> None:
        """A transaction of which nobody was told was the last request of its life: all of it is seen."""
        for request in requests:
            if request.transaction and request.fate is Fate.UNKNOWN:
                seen = {request.rows[address][-1] in found[address] for address in ADDRESSES[:-1]}
                self.fates[request.name] = Fate.COMMITTED if True in seen else Fate.ABSENT
                if len(seen) > 1:
                    self.complaints.append(f"a part of the transaction {request.name} is there")

    def _check_taken(self, found: State) -> None:
        newest: dict[str, str] = {}  # of those that are known to have come
        sent: set[str] = set()
        absent: set[str] = set()
        for request in self.story.requests:
            rows = request.rows.get(TAKEN, ())
            (absent if request.fate is Fate.ABSENT else sent).update(rows)
            for row in rows:  # what was taken has come, whatever its sender was told
                if request.fate is Fate.COMMITTED or row in self.accepted:
                    newest[key_of(row) or row] = row
        there = {key_of(row) or row: row for row in found}
        complaints = [] if len(there) == len(found) else [f"two values of one key in {found}"]
        for row in found:
            if row in self.confirmed or row in absent or row not in sent:
                complaints.append(f"{row} is there, and was taken or never sent")
        order = {row: at for at, row in enumerate(self._rows())}
        for key, row in newest.items():
            found_one = there.get(key)
            if found_one is None or order[found_one] < order[row]:
                if row not in self.accepted:
                    complaints.append(f"{row} is not there, nobody took it, and {found_one} is")
                if found_one is not None and found_one not in self.came:
                    complaints.append(f"{found_one} is there, which no worker held, and {row} came after it")
        self.complaints += [f"{TAKEN}: {words}" for words in complaints]

    def _rows(self) -> Iterable[str]:
        for request in self.story.requests:
            yield from request.rows.get(TAKEN, ())

    def settle(self, port: int, life: int) -> None:
        """The last look."""
        with BlockingPeer.connect("127.0.0.1", port, container_id="looks") as connection:
            self.look(connection)

    def check(self, deaths: Sequence[Death], data: Path) -> list[str]:
        """What was seen is judged already."""
        lost = lost_transactions(self.story.requests, self.fates)
        return shortened(check_deaths(deaths, (WAY,), lost))

    def summary(self) -> str:
        """Rows, and what is left."""
        rows = sum(len(rows) for request in self.story.requests for rows in request.rows.values())
        left = ", ".join(f"{len(next(iter(self.states[each])))} in {each}" for each in ADDRESSES[:-1])
        return f"{rows:,} rows in {len(self.looked)} lives, {left}, {len(self.confirmed):,} taken"



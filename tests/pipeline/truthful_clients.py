"""What a producer and a consumer write down, truthfully, with the events that belong to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amqp_broker.pipeline.event_schema import ARCHIVED, COMMITTED, ROLLED_BACK
from amqp_broker.pipeline.history_file import HISTORY_COLUMNS
from tests.pipeline.truthful_day import Event, World

Line = dict[str, Any]


class Clients:
    """One producer and one consumer of an address, what they wrote down, and the broker's log of it."""

    def __init__(self, name: str, numbers: Iterator[int], world: World) -> None:
        self.name = name
        self.lines: list[Line] = []
        self.world = world
        self.address = world.at("queue")
        self._numbers = numbers

    def say(self, kind: str, **fields: Any) -> Line:
        """One more line."""
        line = {"order": next(self._numbers), "kind": kind, "life": 0, **fields}
        self.lines.append(line)
        return line

    def about(self, number: int, kind: str, /, **fields: Any) -> Line:
        """A line about the producer's message `number`."""
        link = f"{self.name}/{'out' if kind in ('sent', 'accepted', 'refused') else 'in'}"
        return self.say(kind, link=link, address=self.address, message_id=self.message(number), **fields)

    def message(self, number: int) -> str:
        """The message-id of a number."""
        return f"m{number}"

    def send(self, number: int, txn: str | None = None, *, stored: bool = True) -> None:
        """Sent, and stored in the broker; outside of a transaction it is accepted."""
        self.about(number, "sent", producer=f"{self.name}/out", number=number, txn=txn)
        if stored:
            self.store(number)
        if txn is None:
            self.about(number, "accepted")

    def store(self, number: int, **fields: Any) -> None:
        """It is in the broker's log."""
        self.world.put("queue", message_id=self.message(number), **fields)

    def receive(self, number: int, **fields: Any) -> None:
        """Received, accepted, and confirmed."""
        for kind in ("received", "accept_sent", "settled"):
            self.about(number, kind, **fields)

    def txn(self, name: str) -> str:
        """The name of a transaction of this world."""
        return f"{self.name} {name}"

    def find(self, number: int, kind: str) -> Line:
        """The first line of a kind about a message."""
        return next(
            line
            for line in self.lines
            if (line["kind"], line.get("message_id")) == (kind, self.message(number))
        )

    def drop(self, number: int, *kinds: str) -> None:
        """Nobody wrote that down."""
        self.lines[:] = [
            line
            for line in self.lines
            if line.get("message_id") != self.message(number) or line["kind"] not in kinds
        ]

    def lose(self, number: int) -> None:
        """The broker's log knows nothing of a message."""
        name = self.message(number)
        self.world.events[:] = [event for event in self.world.events if event.get("message_id") != name]


def truthful_clients(name: str, numbers: Iterator[int], world: World) -> Clients:
    """Messages 1 to 4 plain; 5 released first; 6 and 7 in a transaction; 8 in one that is rolled back; 9 in
    one whose answer was lost, and which was committed; 10 retired in a transaction; 11 refused; 12 whose
    answer never came, and which is there; 13 is archived, because the queue is a log by then.
    """
    clients = Clients(name, numbers, world)
    clients.say("credit", link=f"{name}/in", count=20)
    for number in range(1, 6):
        clients.send(number)
    _transactions(clients)
    for number in range(1, 5):
        clients.receive(number)
    clients.about(5, "received")
    clients.about(5, "released")
    clients.receive(5)
    for number in (6, 7, 9):
        clients.about(number, "browsed")
        clients.receive(number)
    _retire(clients)
    clients.about(11, "sent", producer=f"{name}/out", number=11)
    clients.about(11, "refused")
    clients.about(12, "sent", producer=f"{name}/out", number=12)
    clients.store(12)
    clients.receive(12)
    clients.about(13, "sent", producer=f"{name}/out", number=13)
    clients.store(13, outcome=ARCHIVED)
    clients.about(13, "accepted")
    _halves(clients)
    return clients


def _transactions(clients: Clients) -> None:
    for txn, posts in (("good", (6, 7)), ("bad", (8,)), ("unanswered", (9,))):
        clients.say("declared", txn=clients.txn(txn))
        for number in posts:
            clients.send(number, clients.txn(txn), stored=txn != "bad")
    clients.say("commit_sent", txn=clients.txn("good"))
    clients.say("discharge_accepted", txn=clients.txn("good"))
    clients.say("rollback_sent", txn=clients.txn("bad"))
    clients.say("discharge_accepted", txn=clients.txn("bad"))
    clients.say("commit_sent", txn=clients.txn("unanswered"))
    clients.say("told", txn=clients.txn("unanswered"), word="committed")


def _retire(clients: Clients) -> None:
    txn = clients.txn("consumer")
    clients.say("declared", txn=txn)
    clients.send(10)
    clients.about(10, "received")
    clients.about(10, "retired", txn=txn)
    clients.say("commit_sent", txn=txn)
    clients.say("discharge_accepted", txn=txn)


def _halves(clients: Clients) -> None:
    for half_id, word, outcome in (("yes", "commit", COMMITTED), ("no", "rollback", ROLLED_BACK)):
        about = {"group": clients.name, "half_id": half_id}
        clients.say("half_sent", **about)
        shown = about | {"half_id": f"string:{half_id}"}
        clients.world.say("half", **shown, address=clients.address)
        clients.say("half_accepted", **about)
        clients.say("resolve_sent", **about, word=word)
        clients.world.say("decide", **shown, outcome=outcome, resolver="producer")
        clients.say("resolve_accepted", **about, word=word)
        if outcome == COMMITTED:
            clients.world.put("queue", "publish", **shown, message_id="half yes")


def history_rows(lines: list[Line]) -> list[tuple[Any, ...]]:
    """Lines as rows of HISTORY_COLUMNS."""
    return [tuple(line.get(name) for name, _ in HISTORY_COLUMNS) for line in lines]


def events_of(everybody: list[Clients]) -> list[Event]:
    """The log of all worlds, without numbers."""
    return [
        {**event, "lsn": lsn}
        for lsn, event in enumerate((each for one in everybody for each in one.world.events), 1)
    ]

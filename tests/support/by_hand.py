"""A connection without a task and without a socket: what stands behind its links is driven step by step."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from amqp_broker.broker import Broker, open_broker
from amqp_broker.configuration import BrokerConfig
from amqp_broker.connection import Connection
from amqp_broker.frames import (
    Accepted,
    AmqpValue,
    Coordinator,
    Declare,
    Declared,
    Header,
    Message,
    Source,
    Target,
    encode_message,
)
from amqp_broker.link_names import LinkNames
from amqp_broker.links import (
    AttachReceived,
    ConnectionSettings,
    DeliveriesReceived,
    Delivery,
    LinkDetached,
    OutcomesReceived,
    ReceiverLink,
    SenderLink,
    Session,
)
from amqp_broker.links import Connection as Engine
from amqp_broker.log_setup import logger
from amqp_broker.nodes.attaching import answer_attach
from amqp_broker.testing import memory_config, run_with_virtual_clock
from amqp_broker.transactions import Transactions
from tests.links.pair import Message as Sendable
from tests.links.pair import Pair, taken


def connection_by_hand(engine: Engine | None = None) -> Connection:
    """One with this engine, or with one that nobody talks to."""
    engine = engine or Engine(ConnectionSettings(), 0.0)
    return Connection(engine, LinkNames(), logger("tests"), lambda: None)


def idle_link(connection: Connection) -> SenderLink:
    """A link that nobody attached: a queue only keeps it."""
    return SenderLink(Session(connection.engine, 0), "link", 0)


class Served:
    """A client's engine, and the broker's side of its connection. Nothing moves but in `settle`."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.pair = Pair()
        self.connection = Connection(
            self.pair.server, broker.nodes.link_names, logger("tests"), lambda: None
        )
        self.transactions = Transactions(self.connection, broker.nodes)
        self.received: list[Delivery] = []
        self.outcomes: list[Any] = []
        self.answers: list[int] = []
        """How many messages each disposition of the broker was about."""
        self.detached: list[LinkDetached] = []
        self._links: dict[type, Callable[[Any], None]] = self.connection.handlers()
        self.pair.open()
        self.session, _ = self.pair.begin()

    def attach_sender(self, target: Any, name: str = "up", **fields: Any) -> SenderLink:
        """A link on which the client sends; `settle` brings the answer."""
        wanted = Target(address=target) if isinstance(target, str | None) else target
        return self.session.attach_sender(name, Source(), wanted, **fields)

    def attach_receiver(self, source: Any, credit: int, name: str = "down", **fields: Any) -> ReceiverLink:
        """A link on which the client receives."""
        wanted = Source(address=source) if isinstance(source, str) else source
        return self.session.attach_receiver(name, wanted, Target(), credit=credit, **fields)

    def context(self, name: str) -> Any:
        """What stands behind the broker's end of a link."""
        (found,) = [link.context for link in self.connection.links if link.name == name]
        return found

    async def settle(self) -> None:
        """Carry octets both ways, have everything stored, and read the mail, until nothing moves."""
        while await self._serve(taken(self.pair.client)):
            pass

    async def _serve(self, up: bytes) -> bool:
        await self._handle(self.pair.server.receive_data(up, self.pair.now) if up else [])
        self.broker.writer.commit_or_wake()
        await self.broker.nodes.store_step([])  # behind everything that this connection has stored
        self.connection.read_mail()
        await self._handle(self.pair.server.take_events())
        down = taken(self.pair.server)
        if down:
            self._hear(self.pair.client.receive_data(down, self.pair.now))
        return bool(up or down or self.connection.waiting)

    async def _handle(self, events: list[Any]) -> None:
        while events:
            answered = False
            for event in events:
                handler = self._links.get(type(event))
                if handler is not None:
                    handler(event)
                    while self.connection.pauses or self.connection.held_for is not None:
                        if self.connection.pauses:
                            self.connection.go_on()
                        else:
                            await self.connection.released()()
                elif isinstance(event, AttachReceived):
                    answered = True
                    await answer_attach(
                        self.connection, self.transactions, self.broker.registry, event, 100
                    )
            server = self.pair.server
            events = server.receive_data(b"", self.pair.now) if answered else server.take_events()

    def _hear(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, DeliveriesReceived):
                self.received.extend(event.deliveries)
            elif isinstance(event, OutcomesReceived):
                self.answers.append(len(event.deliveries))
                self.outcomes.extend([event.state] * len(event.deliveries))
            elif isinstance(event, LinkDetached):
                self.detached.append(event)

    def bodies(self) -> list[bytes]:
        """What the client has received."""
        return [bytes(Message(each.payload).body_sections()[0].value) for each in self.received]

    @property
    def conditions(self) -> list[str]:
        """What messages of the client were rejected with, and "accepted" for the others."""
        return [
            "accepted" if type(each) is Accepted else each.error.condition  # else: rejected
            for each in self.outcomes
        ]


def text(body: bytes, *, durable: bool = True, **sections: Any) -> Sendable:
    """A message with one data section."""
    return Sendable(encode_message(header=Header(durable=durable), body=body, **sections))


@asynccontextmanager
async def served(config: BrokerConfig | None = None) -> AsyncIterator[Served]:
    """A broker in memory, and one connection to it by hand."""
    async with open_broker(config or memory_config()) as broker:
        yield Served(broker)


def by_hand(main: Callable[[Served], Any], config: BrokerConfig | None = None) -> None:
    """Run `main` with one such connection."""

    async def run() -> None:
        async with served(config) as one:
            await main(one)

    run_with_virtual_clock(run)


async def asked(at: Served, control: SenderLink, request: Any) -> Any:
    """The outcome of a request."""
    control.send([Sendable(encode_message(body=AmqpValue(request)))])
    await at.settle()
    return at.outcomes.pop()


async def declared(at: Served, *outcomes: str) -> tuple[SenderLink, bytes]:
    """A control link whose source names these outcomes, and a transaction that it declared."""
    control = at.session.attach_sender("control", Source(outcomes=outcomes or None), Coordinator())
    await at.settle()
    answer = await asked(at, control, Declare())
    assert isinstance(answer, Declared)
    return control, answer.txn_id

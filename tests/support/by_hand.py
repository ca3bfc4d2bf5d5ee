"""A client beside the task of its connection, without a socket: the test says what is heard when.

For what stands behind links: sinks, sources and operations. For several clients in the order of their frames,
jumps of clocks and the end of a broker there is `jumping_broker`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import attrs
import trio.testing

from amqp_broker.broker import Broker, open_broker
from amqp_broker.configuration import BrokerConfig, ListenerConfig
from amqp_broker.connection import Connection
from amqp_broker.connection_task import ConnectionTask
from amqp_broker.faults import Faults
from amqp_broker.frames import (
    Accepted,
    AmqpValue,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Header,
    Message,
    Rejected,
    Source,
    Target,
    TransactionalState,
    encode_message,
)
from amqp_broker.link_names import LinkNames
from amqp_broker.links import Connection as Engine
from amqp_broker.links import (
    ConnectionSettings,
    DeliveriesReceived,
    Delivery,
    LinkDetached,
    OutcomesReceived,
    ReceiverLink,
    SenderLink,
    Session,
)
from amqp_broker.listener import peer_of_stream
from amqp_broker.log_setup import logger
from amqp_broker.queue import Queue
from amqp_broker.testing import ScriptedFaults, memory_config, run_with_virtual_clock
from amqp_broker.testing.blocking_peer import ConnectionLost
from amqp_broker.testing.clock import HELD
from tests.links.pair import NOW, taken
from tests.links.pair import Message as Sendable
from tests.support.controllers import ALL_OUTCOMES
from tests.support.jumping_broker import Wire
from tests.support.stalls import check_nobody_waits


def connection_by_hand(engine: Engine | None = None) -> Connection:
    """One with this engine, or with one that nobody talks to."""
    engine = engine or Engine(ConnectionSettings(), 0.0)
    return Connection(engine, LinkNames(), logger("tests"), lambda: None)


def idle_link(connection: Connection) -> SenderLink:
    """A link that nobody attached: a queue only keeps it."""
    return SenderLink(Session(connection.engine, 0), "link", 0)


class Served:
    """A client's engine, and the task of its connection in the broker. Nothing moves but in `settle`."""

    def __init__(self, broker: Broker, container_id: str = "client") -> None:
        self.broker = broker
        self.client = Engine(ConnectionSettings(server=False, container_id=container_id, sasl=False), NOW)
        self._wire = Wire()
        peer = peer_of_stream(ListenerConfig())
        # A test says who is there: nobody has to log in.
        settings = attrs.evolve(broker.connection_settings(peer), allow_bare_header=True)
        self.task = ConnectionTask(
            broker.nodes, broker.registry, broker.authenticator, settings, self._wire.theirs, peer
        )
        self.connection = self.task.connection
        self.transactions = self.task.transactions
        self._scope = trio.CancelScope()
        broker._nursery.start_soon(self._run)
        self.received: list[Delivery] = []
        self.outcomes: list[Any] = []
        self.answers: list[int] = []
        """How many messages each disposition of the broker was about."""
        self.detached: list[LinkDetached] = []
        self._together = [self]
        self._unheard = b""
        self.client.open()
        self.session = self.client.begin()

    async def _run(self) -> None:
        with self._scope:
            try:
                await self.task.run()
            finally:
                await trio.aclose_forcefully(self._wire.theirs)

    def another(self, container_id: str = "another") -> Served:
        """One more connection to the same broker; `settle` moves what is on its way on either."""
        found = Served(self.broker, container_id)
        found._together = self._together
        self._together.append(found)
        return found

    def attach_sender(self, target: Any, name: str = "up", **fields: Any) -> SenderLink:
        """A link on which the client sends; `settle` brings the answer."""
        wanted = Target(address=target) if isinstance(target, str | None) else target
        origin = fields.pop("source", None) or Source()
        return self.session.attach_sender(name, origin, wanted, **fields)

    def attach_receiver(self, source: Any, credit: int, name: str = "down", **fields: Any) -> ReceiverLink:
        """A link on which the client receives."""
        wanted = Source(address=source) if isinstance(source, str) else source
        return self.session.attach_receiver(name, wanted, Target(), credit=credit, **fields)

    async def sender(self, target: Any, name: str = "up", **fields: Any) -> SenderLink:
        """Such a link, with the answer."""
        link = self.attach_sender(target, name, **fields)
        await self.settle()
        return link

    async def receiver(self, source: Any, credit: int = 0, name: str = "down", **fields: Any) -> ReceiverLink:
        """Such a link, with the answer and what its credit brings."""
        link = self.attach_receiver(source, credit, name, **fields)
        await self.settle()
        return link

    async def post(self, address: str, *bodies: bytes, durable: bool = True, ttl: int | None = None) -> Queue:
        """Messages in a queue, on a link that is closed behind them; none is refused."""
        link = await self.sender(address, f"posts to {address}")
        assert link.send([text(body, durable=durable, ttl=ttl) for body in bodies]) == len(bodies)
        await self.settle()
        told, self.outcomes[-len(bodies) :] = self.outcomes[-len(bodies) :], []
        assert told == [Accepted()] * len(bodies)
        link.detach()
        await self.settle()
        self.detached.pop()
        return self.queue(address)

    def take(self) -> list[Delivery]:
        """What has come, which is forgotten here."""
        came, self.received = self.received, []
        return came

    async def left(self, address: str, name: str = "reads") -> list[bytes]:
        """What somebody else finds in a queue and leaves there."""
        looks = self.another(name)
        link = await looks.receiver(address, 1_000)
        link.detach()
        await looks.settle()
        self._together.remove(looks)
        return looks.bodies()

    def queue(self, name: str = "q") -> Queue:
        """The queue of this name."""
        return self.broker.nodes.queues._queues[name]

    def condition(self) -> str:
        """What the one link that was ended with an error was ended with."""
        (error,) = [gone.error for gone in self.detached if gone.error is not None]
        self.detached.clear()
        return error.condition

    async def pass_time(self, seconds: float) -> None:
        """So much time, all at once, and what it leads to."""
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        await self.settle()
        clock.jump(seconds)
        await self.rest()

    async def rest(self) -> None:
        """Until the broker has nothing left to do by itself, either."""
        while True:
            await self.settle()
            await trio.testing.wait_all_tasks_blocked()
            if self.broker.writer.at_rest:
                await self.settle()
                return

    async def close(self) -> None:
        """The client closes the connection."""
        self.client.close()
        await self.settle()
        self._together.remove(self)

    async def breaks(self, *, cut: bool = False) -> None:
        """The transport ends behind what the client has written, or the broker cuts it."""
        self._say()
        if cut:
            await trio.testing.wait_all_tasks_blocked()
            self._scope.cancel()
        else:
            self._wire.end()
        await trio.testing.wait_all_tasks_blocked()
        self._together.remove(self)
        for other in self._together[:1]:
            await other.settle()

    def context(self, name: str) -> Any:
        """What stands behind the broker's end of a link."""
        (found,) = [link.context for link in self.connection.links if link.name == name]
        return found

    async def settle(self) -> None:
        """Carry octets both ways, and have everything stored, until nothing moves."""
        moves = True
        while moves:
            moves = any([each._say() for each in self._together])  # noqa: C419 - all of them
            await trio.testing.wait_all_tasks_blocked()
            if not HELD:
                moves |= await self._stored()
            for each in self._together:
                if down := each._came():
                    moves = True
                    each._hear(each.client.receive_data(down, NOW))
        if not HELD:
            check_nobody_waits([each.connection for each in self._together])

    async def _stored(self) -> bool:
        """Have everything stored that waits; whether it led to more that was not."""
        writer = self.broker.nodes.writer
        await self.broker.nodes.store_step([])  # behind everything that waits
        begun = writer.operations_begun
        await trio.testing.wait_all_tasks_blocked()
        return writer.operations_begun > begun or not writer.at_rest

    def _say(self) -> bool:
        up = taken(self.client)
        with suppress(ConnectionLost):
            self._wire.write(up)
        self.task.wake()  # a test may have done something by hand
        return bool(up)

    def _came(self) -> bytes:
        came, self._unheard = self._unheard, b""
        return came + (self._wire.read() or b"")

    async def hear_later(self) -> bytes:
        """The broker reads what the client has said; its answers are on their way until `settle`."""
        self._say()
        await trio.testing.wait_all_tasks_blocked()
        self._unheard = self._came()
        return self._unheard

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
        return [condition_of(each) for each in self.outcomes]


def text(body: bytes, *, durable: bool = True, ttl: int | None = None, **sections: Any) -> Sendable:
    """A message with one data section."""
    return Sendable(encode_message(header=Header(durable=durable, ttl=ttl), body=body, **sections))


@asynccontextmanager
async def served(config: BrokerConfig | None = None, faults: Faults | None = None) -> AsyncIterator[Served]:
    """A broker, in memory unless `config` says otherwise, and one connection to it by hand."""
    async with open_broker(config or memory_config(), faults=faults) as broker:
        one = Served(broker)
        await one.settle()
        yield one


def by_hand(
    main: Callable[[Served], Any], config: BrokerConfig | None = None, faults: Faults | None = None
) -> None:
    """Run `main` with one such connection."""

    async def run() -> None:
        async with served(config, faults) as one:
            await main(one)

    run_with_virtual_clock(run)


Main = Callable[..., Awaitable[None]]


def drives(run: Callable[[Main], None], given: int = 1) -> Callable[[Main], Callable[..., None]]:
    """Make tests of coroutine functions, whose first parameters are what `run` calls them with."""

    def decorated(test: Main) -> Callable[..., None]:
        def driven(*arguments: Any, **named: Any) -> None:
            run(lambda *things: test(*things, *arguments, **named))

        driven.__name__, driven.__doc__, driven.__module__ = test.__name__, test.__doc__, test.__module__
        signature = inspect.signature(test)
        parameters = list(signature.parameters.values())[given:]
        driven.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return driven

    return decorated


in_trio = drives(trio.run, given=0)
"""A test that is a coroutine function."""
in_virtual_time = drives(run_with_virtual_clock, given=0)
"""The same, where hours pass as soon as every task waits."""


def at_hand(config: BrokerConfig | None = None, **limits: Any) -> Callable[[Main], Callable[..., None]]:
    """A test whose first parameter is such a connection."""
    if limits:
        config = config or memory_config()
        config = attrs.evolve(config, limits=attrs.evolve(config.limits, **limits))
    return drives(lambda main: by_hand(main, config))


@contextmanager
def commits_held(at: Served, faults: ScriptedFaults) -> Iterator[None]:
    """Inside the block commits wait, beside which the broker goes on."""
    at.broker.writer._pace.commit_s = 1.0
    with faults.held_commits():
        yield


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


def within(txn_id: bytes, outcome: Any = None) -> TransactionalState:
    """A state in a transaction; of messages none."""
    return TransactionalState(txn_id=txn_id, outcome=outcome)


class Control:
    """A control link of its own."""

    def __init__(self, at: Served, name: str = "control") -> None:
        self.at = at
        self.link = at.attach_sender(Coordinator(), name, source=Source(outcomes=ALL_OUTCOMES))

    async def declare(self) -> bytes:
        """The txn-id of a new transaction."""
        await self.at.settle()
        answer = await asked(self.at, self.link, Declare())
        assert isinstance(answer, Declared), f"expected declared, got {answer!r}"
        return answer.txn_id

    async def discharge(self, txn_id: bytes, *, fail: bool = False) -> Any:
        """The outcome."""
        return await asked(self.at, self.link, Discharge(txn_id=txn_id, fail=fail))

    async def commit(self, txn_id: bytes) -> None:
        """Discharge, which has to be accepted."""
        assert await self.discharge(txn_id) == Accepted()

    async def roll_back(self, txn_id: bytes) -> None:
        """Discharge with fail=true, which always succeeds (4.3)."""
        assert await self.discharge(txn_id, fail=True) == Accepted()


async def posted(
    at: Served, link: SenderLink, txn_id: bytes, *bodies: bytes, settled: bool = False, **fields: Any
) -> list[Any]:
    """Post in a transaction, in one write; the provisional outcomes."""
    link.send_in([text(each, **fields) for each in bodies], within(txn_id), settled)
    await at.settle()
    if settled:
        return []
    told, at.outcomes[-len(bodies) :] = at.outcomes[-len(bodies) :], []
    assert all(each.txn_id == txn_id for each in told), f"got {told}"
    return [each.outcome for each in told]


def condition_of(state: Any) -> str:
    """`accepted`, or the condition with which a message was rejected, in a transaction or not."""
    outcome = state.outcome if isinstance(state, TransactionalState) else state
    if isinstance(outcome, Rejected) and outcome.error is not None:
        return str(outcome.error.condition)
    assert isinstance(outcome, Accepted), f"expected accepted or rejected, got {state!r}"
    return "accepted"

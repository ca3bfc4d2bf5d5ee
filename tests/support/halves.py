"""The half-message dialogue by the frame-level peer: put, resolve, be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio
import trio.testing

from amqp_broker.broker import Broker, open_broker
from amqp_broker.configuration import BrokerConfig, BrokerLimits
from amqp_broker.embedding import RunningBroker
from amqp_broker.exit_status import leaves
from amqp_broker.frames import Header, Message, Properties, encode_message
from amqp_broker.persistence import Event
from amqp_broker.testing import ScriptedFaults, memory_config
from amqp_broker.testing.peer import PeerReceiver, PeerSender, PeerSession
from tests.support.broker_clients import attach_with, settle_down

B = TypeVar("B", bound=RunningBroker)
EPOCH_MS = 1_800_000_000_000
PATIENT = memory_config(limits=BrokerLimits(idle_time_out_ms=2**32 - 1))
"""In memory, and no connection dies of idleness however far the clock jumps."""


class JumpingBroker(RunningBroker):
    """A broker whose monotonic and wall clocks stand still until `jump`."""

    def __init__(self, config: BrokerConfig) -> None:
        self.clock = trio.testing.MockClock()
        super().__init__(config, None)
        self._wait_until_ready()

    def _run(self) -> None:
        try:
            trio.run(self._serve, strict_exception_groups=True, clock=self.clock)
        except BaseException as error:
            found = list(leaves(error))
            self._error = found[0] if len(found) == 1 else error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        async with open_broker(self.config, wall_clock=self.now_ms) as broker:
            self._urls = tuple(await broker.start_listeners())
            self._broker = broker
            self._token = trio.lowlevel.current_trio_token()
            self._ready.set()
            await broker.stopped()

    def now_ms(self) -> int:
        """The wall clock."""
        return EPOCH_MS + round(self.clock.current_time() * 1000)

    def jump(self, seconds: float) -> None:
        """So much time passes, all at once."""

        def there(_: Broker) -> None:
            self.clock.jump(seconds)

        self.call(there)


class FaultyBroker(JumpingBroker):
    """A broker by a clock that the test moves, whose commits go through a script, and which can start again
    on the same files where the one before stopped.
    """

    def __init__(self, config: BrokerConfig, after: FaultyBroker | None = None) -> None:
        self.faults = ScriptedFaults()
        self._started_at_ms = EPOCH_MS if after is None else after.now_ms()
        super().__init__(config)

    async def _serve(self) -> None:
        async with open_broker(self.config, wall_clock=self.now_ms, faults=self.faults) as broker:
            self._urls = tuple(await broker.start_listeners())
            self._broker = broker
            self._token = trio.lowlevel.current_trio_token()
            self._ready.set()
            await broker.stopped()

    def now_ms(self) -> int:
        """The wall clock, which goes on where that of the broker before has stopped."""
        return self._started_at_ms + round(self.clock.current_time() * 1000)


def on_disk(folder: Path, **changes: Any) -> BrokerConfig:
    """A configuration with a data directory."""
    return attrs.evolve(PATIENT, memory=False, data_dir=str(folder / "data"), **changes)


Start = Callable[[BrokerConfig], JumpingBroker]


@contextmanager
def stopping(broker: B) -> Iterator[B]:
    """A running broker, stopped at the end."""
    try:
        yield broker
    finally:
        broker.stop()


@contextmanager
def starter() -> Iterator[Start]:
    """Starts brokers, which are stopped at the end."""
    with ExitStack() as stack:

        def start(config: BrokerConfig) -> JumpingBroker:
            return stack.enter_context(stopping(JumpingBroker(config)))

        yield start


def answer(
    broker: RunningBroker, check: PeerReceiver, deliveries: Any, outcome: Any, *, settled: bool = True
) -> None:
    """Give checks an outcome, and wait until that has done what it does."""
    check.settle(deliveries, outcome, settled=settled)
    settle_down(broker, check.session)


def events_of(broker: RunningBroker) -> list[Event]:
    """The event log."""

    async def look(running: Broker) -> list[Event]:
        return await running.half_messages.events()

    found = broker.call(look)
    assert isinstance(found, list)
    return found


def half(
    half_id: Any,
    body: bytes = b"body",
    *,
    named: dict[str, Any] | None = None,
    ttl: int | None = None,
    **properties: Any,
) -> bytes:
    """A message to put, whose message-id is the half-id."""
    return encode_message(
        header=Header(ttl=ttl) if ttl else None,
        properties=Properties(message_id=half_id, **properties),
        application_properties=named,
        body=body,
    )


def resolution(half_id: Any, subject: str | None, named: dict[str, Any] | None = None) -> bytes:
    """A message that commits or rolls back."""
    return encode_message(
        properties=Properties(correlation_id=half_id, subject=subject), application_properties=named, body=b""
    )


def tell(sender: PeerSender, payload: bytes, txn_id: bytes | None = None) -> Any:
    """Send one message and wait for its outcome."""
    connection = sender.session.connection
    connection.pump_until(lambda: sender.may_send)
    number = sender.send(payload, txn_id=txn_id)
    connection.pump_until(lambda: number in sender.outcomes)
    return sender.outcomes[number]


def putter(session: PeerSession, group: str = "g", destination: str = "q") -> PeerSender:
    """A link of `$half/<group>/<destination>`."""
    return session.attach_sender(f"put-{group}-{destination}", f"$half/{group}/{destination}")


def resolver(session: PeerSession, group: str = "g") -> PeerSender:
    """A link of `$half-resolve/<group>`."""
    return session.attach_sender(f"resolve-{group}", f"$half-resolve/{group}")


def checker(
    session: PeerSession, group: str = "g", *, by_outcome: bool = False, credit: int = 10
) -> PeerReceiver:
    """A link of `$half-check/<group>`."""
    address = f"$half-check/{group}" + ("/by-outcome" if by_outcome else "")
    return session.attach_receiver(f"check-{group}-{by_outcome}", address, credit=credit)


def parked(session: PeerSession, group: str = "g") -> PeerReceiver:
    """A link of `$half-parked/<group>`."""
    from amqp_broker.frames import Source

    source = Source(address=f"$half-parked/{group}", distribution_mode="copy")
    link = attach_with(session, f"parked-{group}", source=source)
    assert isinstance(link, PeerReceiver)
    return link


def named(payload: bytes) -> dict[str, Any]:
    """The application properties of a message."""
    return Message(payload).application_properties or {}

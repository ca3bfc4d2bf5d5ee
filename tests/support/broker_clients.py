"""What tests of the core do all the time with a client: send, receive, browse, and wait until nothing moves
any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import trio.testing

from amqp_broker.broker import Broker
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import (
    Accepted,
    Error,
    Header,
    Message,
    Rejected,
    Source,
    encode_message,
)
from amqp_broker.queue import Queue
from amqp_broker.replies import post_in_place
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.peer import Delivery, PeerReceiver, PeerSender, PeerSession
from tests.support.jumping_broker import JumpingBroker
from tests.support.stalls import check_nobody_waits

DRAIN_CREDIT: Final = 500


@contextmanager
def session_to(broker: RunningBroker, container_id: str = "test-peer") -> Iterator[PeerSession]:
    """A session on a connection of its own."""
    peer: BlockingPeer
    if isinstance(broker, JumpingBroker):
        peer = broker.connect(container_id)
    else:
        peer = BlockingPeer.connect(broker.host, broker.port, container_id=container_id)
    with peer as connection:
        yield connection.begin()


def post_own(broker: Broker, queue: Queue, payload: bytes) -> None:
    """A message of the broker itself, as its replies are."""
    queue.reserve_one(0, anyway=True)
    post_in_place(broker.nodes, queue, payload)


def message(body: bytes, *, durable: bool = False, ttl: int | None = None) -> bytes:
    """A message with a header and one data section."""
    return encode_message(header=Header(durable=durable, ttl=ttl), body=body)


def send(
    sender: PeerSender, *bodies: bytes, durable: bool = False, settled: bool = False, ttl: int | None = None
) -> list[int]:
    """Send and, unless settled, wait for the outcomes; returns the delivery ids."""
    connection = sender.session.connection
    numbers = []
    for body in bodies:
        connection.pump_until(lambda: sender.may_send)
        numbers.append(sender.send(message(body, durable=durable, ttl=ttl), settled=settled))
    if not settled:
        connection.pump_until(lambda: all(number in sender.outcomes for number in numbers))
    connection.flush()
    return numbers


def receive(receiver: PeerReceiver, count: int) -> list[Delivery]:
    """Wait for `count` deliveries and take them."""
    receiver.session.connection.pump_until(lambda: len(receiver.deliveries) >= count)
    return [receiver.deliveries.popleft() for _ in range(count)]


def take_everything(receiver: PeerReceiver) -> list[Delivery]:
    """Drain, and accept what comes, until nothing comes any more."""
    found: list[Delivery] = []
    while True:
        receiver.drain_all(DRAIN_CREDIT)
        if not receiver.deliveries:
            return found
        arrived = list(receiver.deliveries)
        receiver.deliveries.clear()
        receiver.settle(arrived, Accepted())
        found += arrived


def body_of(delivery: Delivery) -> bytes:
    """The data of a delivery with one data section."""
    return bytes(Message(delivery.payload).body_sections()[0].value)


def bodies(deliveries: Iterable[Delivery]) -> list[bytes]:
    """The data of each delivery."""
    return [body_of(delivery) for delivery in deliveries]


def attach_with(session: PeerSession, name: str, **fields: Any) -> PeerSender | PeerReceiver:
    """Attach with a terminus of one's own: `source` makes a receiver, `target` a sender (whose own source is
    `origin`).
    """
    if "target" in fields:
        return session.attach_sender(name, None, source=fields.pop("origin", Source()), **fields)
    return session.attach_receiver(name, None, **fields)


def browse(session: PeerSession, name: str, address: str, credit: int = 0) -> PeerReceiver:
    """Attach a receiver with distribution-mode copy."""
    source = Source(address=address, distribution_mode="copy")
    return session.attach_receiver(name, address, credit=credit, source=source)


def address_of(link: PeerSender | PeerReceiver) -> str:
    """The address that the broker answered with."""
    assert link.address
    return link.address


def round_trip(*sessions: PeerSession) -> None:
    """What was sent on these sessions was handled, and what the broker had written before was received."""
    before = [session.flows_received for session in sessions]
    for session in sessions:
        session.flow(echo=True)
        session.connection.flush()
    for session, flows in zip(sessions, before, strict=True):
        _pump_past(session, flows)


def _pump_past(session: PeerSession, flows: int) -> None:
    session.connection.pump_until(lambda: session.flows_received > flows or session.ended is not None)


async def _at_rest(broker: Broker) -> bool:
    """Wait until the broker can do nothing more by itself; whether everything it wrote has left it."""
    writer = broker.writer
    while True:
        await broker.nodes.store_step([])
        await trio.testing.wait_all_tasks_blocked()
        # A thread that commits is no task that blocks.
        if writer.at_rest:
            if any(task._writing or task.engine.output_size() for task in broker._connections):
                return False
            check_nobody_waits([task.connection for task in broker._connections])
            return True


def settle_down(broker: RunningBroker, *sessions: PeerSession) -> None:
    """Return when everything that these sessions sent was handled, committed and answered, and all answers
    are here.
    """
    quiet = 0
    while quiet < 2:  # what answers to the second round trip moved is at rest after the third
        round_trip(*sessions)
        quiet = quiet + 1 if broker.call(_at_rest) else 0
    round_trip(*sessions)


def at_rest(broker: RunningBroker) -> None:
    """Return when the broker has nothing left to do by itself."""
    broker.call(_at_rest)


def counts(broker: RunningBroker, name: str) -> tuple[int, int]:
    """(message_count, byte_count) of a queue."""

    def there(running: Broker) -> tuple[int, int]:
        queue = running.nodes.queues._queues[name]
        return queue.message_count, queue.byte_count

    found = broker.call(there)
    assert isinstance(found, tuple)
    return found


def nothing_comes(broker: RunningBroker, *receivers: PeerReceiver) -> bool:
    """Whether nothing is there for these receivers, and the broker rests."""
    settle_down(broker, *{receiver.session: None for receiver in receivers})
    return not any(receiver.deliveries for receiver in receivers)


def error_of(outcome: object) -> Error:
    """The error of a rejected outcome."""
    assert isinstance(outcome, Rejected) and outcome.error is not None, f"expected rejected, got {outcome!r}"
    return outcome.error


def condition_of(outcome: object) -> str:
    """The condition of a rejected outcome."""
    return str(error_of(outcome).condition)

"""The half-message dialogue by the frame-level peer: put, resolve, be asked."""

from __future__ import annotations

from typing import Any

from amqp_broker.broker import Broker
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import Header, Message, Properties, Source, encode_message
from amqp_broker.halves.administration import HalfMessage
from amqp_broker.persistence import Event
from amqp_broker.testing.peer import PeerReceiver, PeerSender, PeerSession
from tests.support.broker_clients import attach_with, settle_down


def answer(
    broker: RunningBroker, check: PeerReceiver, deliveries: Any, outcome: Any, *, settled: bool = True
) -> None:
    """Give checks an outcome, and wait until that has done what it does."""
    check.settle(deliveries, outcome, settled=settled)
    settle_down(broker, check.session)


def events_of(broker: RunningBroker) -> list[Event]:
    """The journal."""

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
    source = Source(address=f"$half-parked/{group}", distribution_mode="copy")
    link = attach_with(session, f"parked-{group}", source=source)
    assert isinstance(link, PeerReceiver)
    return link


def named(payload: bytes) -> dict[str, Any]:
    """The application properties of a message."""
    return Message(payload).application_properties or {}


def halves(broker: RunningBroker, group: str = "g") -> dict[Any, HalfMessage]:
    """What an administrator sees, by half-id."""

    async def there(running: Broker) -> list[HalfMessage]:
        return await running.half_messages.messages(group)

    return {each.half_id: each for each in broker.call(there)}


def reserved(broker: RunningBroker, name: str) -> int:
    """How many messages have room kept in a queue."""
    found = broker.call(lambda running: running.nodes.queues._queues[name].reserved_messages)
    assert isinstance(found, int)
    return found

"""Messages of sequenced streams for tests: numbered in either form, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import Accepted, Header, Symbol, Uint, Ulong, encode_message
from amqp_broker.testing.peer import PeerSender, PeerSession
from tests.support.broker_clients import body_of, error_of, receive

Place = tuple[int, int, int]
"""(id, number, prev)."""


def annotated(place: Place, stream: str | None = "s", body: bytes | None = None, **header: Any) -> bytes:
    """A message whose place is in message annotations; `stream` None leaves it to the link. The body says the
    place, unless it is given.
    """
    annotations: dict[Any, Any] = {} if stream is None else {Symbol("x-opt-seq-stream"): stream}
    annotations[Symbol("x-opt-seq-id")] = Ulong(place[0])
    annotations[Symbol("x-opt-seq-no")] = Uint(place[1])
    annotations[Symbol("x-opt-seq-prev")] = Uint(place[2])
    return encode_message(
        header=Header(durable=True, **header),
        message_annotations=annotations,
        body=text_of(place) if body is None else body,
    )


def stated(place: Place, stream: str = "s", integer: Callable[[int], Any] = int) -> bytes:
    """The same in application properties, as JMS can set them."""
    properties: dict[str, Any] = {
        "seq_stream": stream,
        "seq_id": integer(place[0]),
        "seq_no": integer(place[1]),
        "seq_prev": integer(place[2]),
    }
    return encode_message(header=Header(durable=True), application_properties=properties, body=text_of(place))


def text_of(place: Place) -> bytes:
    """The body that says a place."""
    return b"%d.%d" % (place[0], place[1])


def chain(first: int, last: int, seq_id: int = 1) -> list[Place]:
    """The places from one number to another, each behind the one before."""
    return [(seq_id, number, number - 1) for number in range(first, last + 1)]


def outcomes(sender: PeerSender, payloads: Iterable[bytes], **fields: Any) -> list[Any]:
    """Send all in one write, and wait for their outcomes."""
    connection = sender.session.connection
    connection.pump_until(lambda: sender.may_send)
    numbers = [sender.send(payload, **fields) for payload in payloads]
    connection.pump_until(lambda: all(number in sender.outcomes for number in numbers))
    return [sender.outcomes[number] for number in numbers]


def words(states: Iterable[object]) -> list[str]:
    """`accepted`, or the condition of a rejection, for each outcome."""
    return ["accepted" if isinstance(state, Accepted) else error_of(state).condition for state in states]


def info_of(state: object) -> dict[str, int]:
    """The numbers in the info map of a rejection."""
    return {name: value.value for name, value in (error_of(state).info or {}).items()}


def left_at(session: PeerSession, address: str, count: int, *, take: bool = False) -> list[str]:
    """The bodies of the `count` messages that are at a queue, and of nothing more; `take` removes them."""
    receiver = session.attach_receiver(f"left-{len(session.links)}", address, credit=count + 10)
    deliveries = receive(receiver, count)
    found = [body_of(delivery).decode() for delivery in deliveries]
    if take:
        receiver.settle(deliveries, Accepted())
    receiver.drain_all(10)
    assert not receiver.deliveries, f"more than {count} messages: {body_of(receiver.deliveries[0])!r}"
    receiver.detach()
    return found


def attached_sender(session: PeerSession, name: str, address: str | None, stream: Any = None) -> PeerSender:
    """A sender whose attach may name a stream."""
    return session.attach_sender(
        name, address, properties=None if stream is None else {"seq-stream": stream}
    )


def stream_of(broker: RunningBroker, queue: str, stream: str = "s") -> Any:
    """What an administrator sees of a stream."""

    async def there(running: Any) -> Any:
        return await running.streams(queue)

    found = [info for info in broker.call(there) if info.stream == stream]
    return found[0] if found else None

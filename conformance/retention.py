"""Both sides of reading by offset, for scenarios: filters, annotations, and requests to `$retained`.

kept = filled(broker, 10)
reader = reader_on(kept.session, kept.address, "first", credit=10)
expect_offsets(reader, range(10))
"""

from collections.abc import Iterable
from typing import Any

import attrs

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver, Sender, Session
from amqp_broker.conformance.messages import MESSAGE_ANNOTATIONS, data, map_of
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, expect_equal
from amqp_broker.conformance.queues import Replies
from amqp_broker.conformance.transcript import describe_value
from amqp_broker.frames import (
    Accepted,
    AmqpValue,
    Attach,
    Described,
    Detach,
    Disposition,
    Error,
    Properties,
    Rejected,
    Source,
    Symbol,
    Transfer,
    Ulong,
    encode_message,
    plain_value,
)
from amqp_broker.testing.peer import Delivery

OFFSET_SPEC = "rabbitmq:stream-offset-spec"
UNTIL = "amqp-broker:until"
CURSOR = "amqp-broker:cursor"
DROPPED = "retained:dropped"
BEYOND = "retained:beyond"
LOCKED = "amqp:resource-locked"
INVALID = "amqp:invalid-field"
NOT_ALLOWED = "amqp:not-allowed"
KEPT, BRIEF = "kept", "brief"
"""Queues of second_broker.toml: one that retains for a day, and one that retains a few bytes."""


def filters(start: Any = None, until: int | None = None, cursor: Any = None) -> dict[str, Any]:
    """Returns the filter-set of a link that reads by offset (3.5.8)."""
    values = {OFFSET_SPEC: Ulong(start) if type(start) is int else start, CURSOR: cursor}
    if until is not None:
        values[UNTIL] = Ulong(until)
    return {name: Described(Symbol(name), value) for name, value in values.items() if value is not None}


@attrs.frozen
class Kept:
    """A queue that retains, and a sender that fills it."""

    session: Session
    address: str
    sender: Sender

    def put(self, *bodies: bytes) -> None:
        """Sends messages and waits until they are accepted."""
        self.sender.put([data(body) for body in bodies])


def filled(broker: Broker, count: int, name: str = "q") -> Kept:
    """Returns a retaining queue with messages "0", "1", ..."""
    session = broker.session()
    address = broker.queue(name, KEPT)
    kept = Kept(session, address, session.sender(address))
    kept.put(*[b"%d" % number for number in range(count)])
    return kept


def consume(session: Session, address: str, count: int) -> None:
    """Receives and accepts so many messages, as any consumer does."""
    consumer = session.receiver(address, 9, "consumer", credit=count)
    for _ in range(count):
        consumer.settle(consumer.receive(), Accepted())
    consumer.detach()


def source_of(address: str, mode: str | None = "copy", **asked: Any) -> Source:
    """Returns a source that is read by offset."""
    return Source(address=address, distribution_mode=mode, filter=filters(**asked))


def reader_on(
    session: Session, address: str, start: Any = None, *, handle: int = 1, credit: int = 0,
    settled: bool = False, **asked: Any,
) -> Receiver:  # fmt: skip
    """Attaches a link that reads by offset, which must not be refused."""
    return session.receiver(
        address, handle, f"reader-{handle}", credit, source=source_of(address, start=start, **asked),
        snd_settle_mode=1 if settled else 0,
    )  # fmt: skip


def expect_refused(session: Session, condition: str, source: Source) -> Error:
    """Returns the error of a link that must be refused with this condition."""
    return session.put_receiver(None, 7, source=source).expect_refused(condition)


def properties_of_link(reader: Receiver) -> dict[str, Any]:
    """Returns the properties of the broker's attach, numbers as numbers."""
    attach = reader.remote_attach
    found: dict[str, Any] = plain_value((attach.properties if attach else None) or {})
    return found


def offset_of(delivery: Delivery) -> int:
    """Returns the annotation x-stream-offset of a delivery, which has to be an ulong."""
    found = map_of(delivery.payload, MESSAGE_ANNOTATIONS).get("x-stream-offset")
    if not isinstance(found, Ulong):
        raise Unexpected(f"x-stream-offset: expected an ulong, got {describe_value(found)}")
    return found.value


def expect_offsets(reader: Receiver, expected: Iterable[int]) -> list[Delivery]:
    """Receives as many messages and returns them; raises Unexpected unless they have these offsets."""
    wanted = list(expected)
    deliveries = [reader.receive() for _ in wanted]
    expect_equal("offsets", wanted, [offset_of(each) for each in deliveries])
    return deliveries


def expect_settled(session: Session, deliveries: Iterable[Delivery]) -> None:
    """Returns when the broker has settled them all."""
    waiting = {each.delivery_id for each in deliveries}
    while not all(number in session.settlements for number in waiting):
        session.peer.expect_frame(Disposition)


class Asker:
    """A link to `$retained`, and a queue for the replies."""

    def __init__(self, session: Session, handle: int = 20) -> None:
        self.session = session
        self._replies = Replies(session, handle, f"replies-{handle}")
        self.reply_to = self._replies.address
        self.link = session.sender("$retained", handle + 1, f"asks-{handle}")
        self._asked = 0

    def send(self, operation: str | None, body: dict[str, Any]) -> int:
        """Sends a request and returns its delivery-id."""
        self._asked += 1
        properties = Properties(subject=operation, reply_to=self.reply_to, correlation_id=Ulong(self._asked))
        return self.link.send(encode_message(properties=properties, body=AmqpValue(body)))

    def answer(self, number: int) -> Any:
        """Returns the outcome of a request; a reply that comes before it is passed over."""
        return self.session.await_outcome(number, skip=(Transfer,)).state

    def reply(self, correlation_id: int | None = None) -> dict[str, Any]:
        """Returns the body of the next reply; raises Unexpected unless it answers the last request."""
        return self._replies.expect(Ulong(self._asked if correlation_id is None else correlation_id))

    def ask(self, operation: str, **body: Any) -> dict[str, Any]:
        """Returns the body of the reply to a request, which must not be refused."""
        number = self.send(operation, body)
        value = self.reply()
        expect_equal("the outcome", Accepted, type(self.answer(number)))
        return value

    def refused(self, operation: str | None, **body: Any) -> Error:
        """Returns the error with which a request is rejected."""
        state = self.answer(self.send(operation, body))
        if not isinstance(state, Rejected) or state.error is None:
            raise Unexpected(f"expected rejected with an error, got {describe_value(state)}")
        error: Error = state.error
        return error

    def positions(self, cursor: str) -> dict[str, int]:
        """Returns where a cursor stands."""
        found: dict[str, int] = self.ask("cursor", cursor=cursor)["positions"]
        return found


def asker(broker: Broker, container: str = "asker") -> Asker:
    """Returns a link to `$retained` on a connection of its own."""
    return Asker(broker.session(container=container))


def require_events(session: Session) -> None:
    """Ends the scenario as not applicable where this principal may not read the journal."""
    session.put_receiver(None, 6, "probe", source=Source(address="$events"))
    attach = session.peer.expect(Attach)
    if attach.source is None:
        session.peer.expect(Detach)
        raise NotApplicable("this user may not read $events")
    session.put(Detach(handle=6, closed=True))
    session.peer.expect(Detach)

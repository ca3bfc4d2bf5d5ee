"""Reading by offset and `$retained` by the frame-level peer."""

from __future__ import annotations

import itertools
from typing import Any

from amqp_broker.configuration import BrokerConfig, BrokerLimits, QueuePolicy
from amqp_broker.frames import (
    Accepted,
    AmqpValue,
    Described,
    Error,
    Message,
    Properties,
    Rejected,
    Source,
    Symbol,
    Timestamp,
    Ulong,
    encode_message,
    plain_value,
)
from amqp_broker.testing import memory_config
from amqp_broker.testing.peer import Delivery, PeerReceiver, PeerSender, PeerSession
from tests.support.broker_clients import address_of, attach_with, receive

DAY_MS = 24 * 3_600_000
OFFSET_SPEC = "rabbitmq:stream-offset-spec"
UNTIL = "amqp-broker:until"
CURSOR = "amqp-broker:cursor"

_serial = itertools.count(1)


def retaining(*patterns: str, keep_ms: int = DAY_MS, keep_bytes: int = 0, **changes: Any) -> BrokerConfig:
    """A broker in memory whose queues of these patterns retain; no connection dies of idleness."""
    policies = tuple(
        QueuePolicy(pattern=pattern, retention_ms=keep_ms, retention_bytes=keep_bytes) for pattern in patterns
    )
    limits = BrokerLimits(idle_time_out_ms=2**32 - 1, **changes.pop("limits", {}))
    return memory_config(queue_policies=policies, limits=limits, **changes)


def spec(value: object) -> object:
    """An offset spec of the wire's types."""
    return Ulong(value) if type(value) is int else value


def filters(
    start: object = None, until: int | None = None, cursor: str | None = None
) -> dict[str, Described]:
    """The filters of a link that reads by offset."""
    found: dict[str, Described] = {}
    if start is not None:
        found[OFFSET_SPEC] = Described(Symbol(OFFSET_SPEC), spec(start))
    if until is not None:
        found[UNTIL] = Described(Symbol(UNTIL), Ulong(until))
    if cursor is not None:
        found[CURSOR] = Described(Symbol(CURSOR), cursor)
    return found


def read(
    session: PeerSession,
    address: str,
    start: object = None,
    *,
    until: int | None = None,
    cursor: str | None = None,
    credit: int = 100,
    settled: bool = False,
    mode: str | None = "copy",
) -> PeerReceiver:
    """Attach a link that reads by offset. Raises PeerError when it is refused."""
    link = attach_with(
        session,
        f"reader-{next(_serial)}",
        source=Source(address=address, distribution_mode=mode, filter=filters(start, until, cursor)),
        snd_settle_mode=1 if settled else 2,
    )
    assert isinstance(link, PeerReceiver)
    if credit:
        link.flow(credit)
    return link


def offset_of(delivery: Delivery) -> int:
    """Its annotation x-stream-offset."""
    return annotation_of(delivery, "x-stream-offset")


def time_of(delivery: Delivery) -> int:
    """Its annotation x-opt-enqueued-time, in milliseconds."""
    return annotation_of(delivery, "x-opt-enqueued-time")


def annotation_of(delivery: Delivery, name: str) -> int:
    """One of the annotations that the broker adds."""
    found = (Message(delivery.payload).message_annotations or {})[Symbol(name)]
    assert isinstance(found, (Ulong, Timestamp))
    return found.value


def event_of(delivery: Delivery) -> dict[str, Any]:
    """The fields of an event, without the wire's types."""
    message = Message(delivery.payload)
    value = message.body_sections()[0].value
    assert isinstance(value, dict) and message.properties is not None
    fields: dict[str, Any] = plain_value(value)
    assert message.properties.subject == fields["type"]
    return fields


class Refused(Exception):
    """`$retained` rejected a request."""

    def __init__(self, error: Error) -> None:
        super().__init__(f"{error.condition}: {error.description}")
        self.error = error


class Asker:
    """A link to `$retained` with a queue for the replies."""

    def __init__(self, session: PeerSession) -> None:
        self.session = session
        number = next(_serial)
        replies = attach_with(session, f"replies-{number}", source=Source(dynamic=True))
        assert isinstance(replies, PeerReceiver)
        self.replies = replies
        self.reply_to = address_of(replies)
        replies.flow(1_000)
        self.link: PeerSender = session.attach_sender(f"asks-{number}", "$retained")

    def tell(self, operation: str, **body: Any) -> int:
        """Send a request; returns its delivery id."""
        self.session.connection.pump_until(lambda: self.link.may_send)
        return self.link.send(
            encode_message(
                properties=Properties(
                    subject=operation, reply_to=self.reply_to, correlation_id=f"{operation}-{next(_serial)}"
                ),
                body=AmqpValue(body),
            )
        )

    def ask(self, operation: str, **body: Any) -> dict[str, Any]:
        """The reply to a request, without the wire's types. Raises Refused."""
        number = self.tell(operation, **body)
        self.session.connection.pump_until(lambda: number in self.link.outcomes)
        outcome = self.link.outcomes[number]
        if isinstance(outcome, Rejected):
            assert outcome.error is not None
            raise Refused(outcome.error)
        assert isinstance(outcome, Accepted), f"expected accepted, got {outcome!r}"
        return self.reply()

    def reply(self) -> dict[str, Any]:
        """The next reply."""
        delivery = receive(self.replies, 1)[0]
        self.replies.settle([delivery], Accepted())
        if self.replies.credit < 100:
            self.replies.flow(1_000)
        message = Message(delivery.payload)
        assert message.properties is not None and message.properties.subject == "ok"
        value = message.body_sections()[0].value
        assert isinstance(value, dict)
        found: dict[str, Any] = plain_value(value)
        return found

    def positions(self, cursor: str) -> dict[str, int]:
        """Where a cursor stands."""
        found: dict[str, int] = self.ask("cursor", cursor=cursor)["positions"]
        return found

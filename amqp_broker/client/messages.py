"""Messages as a client makes them, and as it gets them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.client.errors import WrongUse
from amqp_broker.frames import (
    AmqpSequence,
    AmqpValue,
    Data,
    Double,
    Header,
    Long,
    Message,
    Properties,
    Ulong,
    encode_message,
)

if TYPE_CHECKING:
    from amqp_broker.client.core_link import LinkCore
    from amqp_broker.links import Delivery, ReceiverLink


IDS: Final = ("message_id", "correlation_id")
"""Where an int goes as ulong, the only type of whole numbers that the standard has for them (3.2.11)."""
ID_MAX: Final = 2**64 - 1


class OutgoingMessage:
    """An encoded message, ready to be sent, as often as you like."""

    __slots__ = ("data", "message_format")

    def __init__(self, data: bytes, message_format: int = 0) -> None:
        self.data = data
        self.message_format = message_format

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"<OutgoingMessage {len(self.data)} octets>"


def message(
    body: Any = b"",
    *,
    durable: bool = True,
    priority: int | None = None,
    ttl_ms: int | None = None,
    properties: Properties | None = None,
    application_properties: dict[str, Any] | None = None,
    message_annotations: dict[Any, Any] | None = None,
    **fields: Any,
) -> OutgoingMessage:
    """A message. `body`: bytes become a data section, anything else an amqp-value; `fields` are those of
    Properties (`message_id`, `subject`, `reply_to`, `correlation_id`, ...). Ids are str, bytes, UUID, or an
    int from 0 on, which goes as ulong.

    Durable unless you say otherwise: the broker promises nothing for the others. Raises EncodeError for what
    the wire cannot carry, WrongUse for fields beside `properties`, and for an int that no ulong can hold.
    """
    if fields and properties is not None:
        raise WrongUse(f"expected either properties or single fields of them, found both: {sorted(fields)}")
    return OutgoingMessage(
        encode_message(
            header=Header(durable=durable, priority=priority, ttl=ttl_ms),
            message_annotations=message_annotations,
            properties=_with_ids(Properties(**fields) if fields else properties),
            application_properties=application_properties,
            body=body,
        )
    )


def _with_ids(properties: Properties | None) -> Properties | None:
    """The same with ids that are ints as ulong. Raises WrongUse."""
    for name in IDS:
        found = getattr(properties, name, None)
        if type(found) is int:
            if not 0 <= found <= ID_MAX:
                raise WrongUse(f"{name}: expected an int from 0 to {ID_MAX} (a ulong), found {found}")
            properties = copy.copy(properties)
            setattr(properties, name, Ulong(found))
    return properties


def outgoing(content: Any) -> OutgoingMessage:
    """What `send` takes: a message as it is, anything else as the body of one."""
    return content if isinstance(content, OutgoingMessage) else message(content)


def as_sent(value: Any) -> Any:
    """A value as `message` takes it: a long is an int and a double a float, in lists and maps, too. Types
    that Python does not have stay as they are (`Uint(1)`, `Timestamp(0)`, ...): what is sent on is the same.
    """
    if isinstance(value, Long | Double):
        return value.value
    if type(value) is list:
        return [as_sent(item) for item in value]
    if type(value) is dict:
        return {as_sent(key): as_sent(item) for key, item in value.items()}
    return value


def body_of(found: Message) -> Any:
    """The body as one value, `as_sent`: octets of data sections, one list of sequences, the value of an
    amqp-value; None without one.

    Raises DecodeError.
    """
    sections = found.body_sections()
    if not sections:
        return None
    if isinstance(sections[0], AmqpValue):
        return as_sent(sections[0].value)
    if isinstance(sections[0], Data):
        return b"".join(section.value for section in sections if isinstance(section, Data))
    items: list[Any] = []
    for section in sections:
        assert isinstance(section, AmqpSequence), "the codec keeps bodies of one kind"
        items += as_sent(section.value)
    return items


class ReceivedMessage:
    """A message that came. Sections are decoded when they are asked for, and raise DecodeError then.

    `settled` tells that nothing more can be said of it: the sender sent it so, or we gave it an outcome.
    """

    __slots__ = ("delivery", "link", "message", "settled")

    def __init__(self, link: LinkCore[ReceiverLink], delivery: Delivery) -> None:
        self.link = link
        self.delivery = delivery
        self.message = Message(delivery.payload)
        self.settled = delivery.settled

    @property
    def body(self) -> Any:
        """The content of the message, as `body_of` reads it."""
        return body_of(self.message)

    @property
    def header(self) -> Header:
        """Durable, priority, ttl, delivery-count (3.2.1)."""
        return self.message.header

    @property
    def properties(self) -> Properties:
        """The properties, with ids as `message` takes them; empty ones where the section is omitted."""
        found = self.message.properties or Properties()
        for name in IDS:
            value = getattr(found, name)
            if type(value) is Ulong:
                found = copy.copy(found)
                setattr(found, name, value.value)
        return found

    @property
    def application_properties(self) -> dict[str, Any]:
        """The application properties, `as_sent`; empty where the section is omitted."""
        found: dict[str, Any] = as_sent(self.message.application_properties or {})
        return found

    @property
    def message_annotations(self) -> dict[Any, Any]:
        """The message annotations, `as_sent`; empty where the section is omitted."""
        found: dict[Any, Any] = as_sent(self.message.message_annotations or {})
        return found

    def __repr__(self) -> str:
        return f"<ReceivedMessage {self.delivery.delivery_id} of {self.link.address!r}>"

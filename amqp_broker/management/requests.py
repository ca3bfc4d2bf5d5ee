"""Requests to `$management` and the replies to them (AMQP Management, working draft 11, 3.1).

    request  application properties: operation; type, and name or identity, of what it is about; locales
             properties: reply-to, correlation-id or message-id
    reply    application properties: statusCode (as HTTP has it), statusDescription
             properties: correlation-id as asked, or the message-id of the request
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from amqp_broker.frames import AmqpValue, Int, Long, Message, Properties, Symbol, encode_message, plain_value
from amqp_broker.management.entity_types import Argument
from amqp_broker.management.errors import Unmanageable

if TYPE_CHECKING:
    from amqp_broker.authorisation import Principal

BAD_REQUEST = 400


class Asker(Protocol):
    """Who asks: the sender of a request, or the program that embeds the broker."""

    @property
    def principal(self) -> Principal:
        """Whose rights count."""

    @property
    def container_id(self) -> str:
        """What the log says of it."""


@attrs.frozen
class ManagementRequest:
    """One request as a value. `told` are its application properties by name."""

    correlation_id: Any
    reply_to: Any
    told: dict[str, Any]
    body: Any

    def text(self, key: str) -> str | None:
        """A string that may be left out. Raises Unmanageable."""
        value = self.told.get(key)
        if value is None:
            return None
        found = plain_value(value)
        if not isinstance(found, str):
            raise Unmanageable(BAD_REQUEST, f"{key}: expected a string, got {found!r:.80}")
        return found

    def wanted(self, key: str) -> str:
        """A string that has to be there. Raises Unmanageable."""
        found = self.text(key)
        if not found:
            raise Unmanageable(BAD_REQUEST, f"application property {key}: expected a string, got none")
        return found

    def number(self, key: str, default: int) -> int:
        """A number from 0 on that may be left out. Raises Unmanageable."""
        value = self.told.get(key)
        if value is None:
            return default
        found = plain_value(value)
        if not isinstance(found, int) or isinstance(found, bool) or found < 0:
            raise Unmanageable(BAD_REQUEST, f"{key}: expected a number from 0 on, got {found!r:.80}")
        return found

    def argument(self, argument: Argument) -> Any:
        """What an action is told; None where it may be left out, and is. Raises Unmanageable."""
        name, kind = argument.name, argument.kind
        value = self.told.get(name)
        if value is None:
            if argument.required:
                what = "a number" if kind is int else "a string"
                raise Unmanageable(BAD_REQUEST, f"application property {name}: expected {what}, got none")
            return None
        if kind is int:
            return self.number(name, 0)
        if kind is bool and not isinstance(value, bool):
            raise Unmanageable(BAD_REQUEST, f"{name}: expected true or false, got {value!r:.80}")
        return value if kind is bool else self.text(name)

    @property
    def identity(self) -> str:
        """Whom it is about: by identity, or by name. Raises Unmanageable."""
        return self.text("identity") or self.wanted("name")

    @property
    def attributes(self) -> dict[str, Any]:
        """The map in its body; empty where there is none. Raises Unmanageable."""
        if self.body is None:
            return {}
        body = self.body
        if not isinstance(body, dict) or not all(isinstance(key, str | Symbol) for key in body):
            raise Unmanageable(BAD_REQUEST, f"body: expected a map with strings as keys, got {body!r:.80}")
        return {key.value if isinstance(key, Symbol) else key: value for key, value in body.items()}


@attrs.frozen
class Answer:
    """What a request is answered: a status as HTTP has it and what it says, a body, and `more` application
    properties.
    """

    status: int
    description: str
    body: Any = None
    more: Mapping[str, int] = attrs.field(factory=dict)


def read_request(payload: bytes) -> ManagementRequest:
    """The request of a message. Raises DecodeError where it is malformed."""
    message = Message(payload)
    properties = message.properties or Properties()
    sections: Any = message.body_sections()
    value = sections[0].value if sections and isinstance(sections[0], AmqpValue) else None
    correlation_id = properties.message_id if properties.correlation_id is None else properties.correlation_id
    told = message.application_properties or {}
    return ManagementRequest(correlation_id, properties.reply_to, told, value)


def reply_message(correlation_id: Any, answer: Answer) -> bytes:
    """A reply, encoded."""
    told: dict[str, Any] = {"statusCode": Int(answer.status), "statusDescription": answer.description}
    told |= {name: Int(value) for name, value in answer.more.items()}
    return encode_message(
        properties=Properties(correlation_id=correlation_id), application_properties=told,
        body=AmqpValue(_on_the_wire(answer.body)),
    )  # fmt: skip


def _on_the_wire(value: Any) -> Any:
    """Numbers as longs, in maps and lists, too."""
    if isinstance(value, dict):
        return {key: _on_the_wire(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_on_the_wire(item) for item in value]
    return Long(value) if isinstance(value, int) and not isinstance(value, bool) else value

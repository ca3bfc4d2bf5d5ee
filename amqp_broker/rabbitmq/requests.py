"""Requests to RabbitMQ's management node, which are written like those of HTTP, and the replies to them.

    request  properties: subject = GET, PUT, POST or DELETE; to = a path; reply-to = $me; message-id
             body: amqp-value, a map or null
    reply    properties: subject = the status; correlation-id = the message-id
             body: amqp-value; from 400 on a string that says why
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote

import attrs

from amqp_broker.frames import AmqpValue, Message, Properties, Symbol, encode_message, plain_value
from amqp_broker.management.errors import Unmanageable
from amqp_broker.management.node import NOT_IMPLEMENTED
from amqp_broker.management.requests import BAD_REQUEST, Answer
from amqp_broker.topics.topics import DIRECT, FANOUT
from amqp_broker.word_patterns import WILDCARDS

PAIRED_LINK: Final = "$me"
"""The reply-to that means the receiving link of the same name (AMQP Link Pairing, 2.1)."""


FIELDS_MAX: Final = 8  # of a query, and of the name of a binding: none has more than 4

_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


@attrs.frozen
class Call:
    """One request as a value: the segments of its path, still encoded, and the fields of its query."""

    method: str
    segments: tuple[str, ...]
    query: dict[str, str]
    body: Any

    @property
    def name(self) -> str:
        """What its second segment names."""
        return unquote(self.segments[1])

    def attributes(self, *known: str) -> dict[str, Any]:
        """The map in its body, which has no other keys than these. Raises Unmanageable."""
        found = plain_map("body", self.body)
        for key in found:
            if key not in known:
                names = ", ".join(known)
                raise Unmanageable(BAD_REQUEST, f"body: expected only {names}, got {key!r:.80}")
        return found


def plain_map(what: str, value: Any) -> dict[str, Any]:
    """A map of strings; none is an empty one. Raises Unmanageable."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str | Symbol) for key in value):
        raise Unmanageable(BAD_REQUEST, f"{what}: expected a map with strings as keys, got {value!r:.80}")
    found: dict[str, Any] = plain_value(value)
    return found


def read_call(message: Message) -> Call:
    """What a message asks for. Raises Unmanageable, and DecodeError where it is malformed."""
    properties = message.properties or Properties()
    sections: Any = message.body_sections()
    body = sections[0].value if sections and isinstance(sections[0], AmqpValue) else None
    path = properties.to
    if not isinstance(path, str) or not path.startswith("/") or _BROKEN_ESCAPE.search(path):
        raise Unmanageable(BAD_REQUEST, f"properties.to: expected a path as /queues/QUEUE, got {path!r:.120}")
    path, _, query = path.partition("?")
    try:
        unquote(path, errors="strict")
        fields = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError as error:
        raise Unmanageable(BAD_REQUEST, f"properties.to: expected UTF-8 and few fields: {error}") from None
    return Call(str(properties.subject), tuple(path[1:].split("/")), dict(fields), body)


def reply_payload(message_id: Any, answer: Answer) -> bytes:
    """A reply, encoded."""
    failed = answer.status >= BAD_REQUEST
    return encode_message(
        properties=Properties(correlation_id=message_id, subject=str(answer.status)),
        application_properties={"http:response": "1.1"},
        body=AmqpValue(answer.description if failed else answer.body),
    )


@attrs.frozen
class Binding:
    """That a queue gets what is sent to an exchange with a key."""

    source: str
    key: str
    queue: str

    @property
    def topics(self) -> tuple[str, ...]:
        """The patterns of topics that say the same: without a key, those of an exchange that has none, or
        heeds none.
        """
        return (f"{self.source}.{self.key}",) if self.key else (self.source, f"{self.source}.#")

    def pattern(self, routing: str) -> str:
        """The topics of an exchange of this type. Raises Unmanageable for a pattern where none is heeded."""
        if routing == FANOUT:
            return f"{self.source}.#"
        if routing == DIRECT and any(word in WILDCARDS for word in self.key.split(".")):
            raise Unmanageable(
                NOT_IMPLEMENTED, f"exchange {self.source!r:.80} is direct, and {self.key!r:.80} has a word "
                "* or #, which is a pattern here: expected a key without"
            )  # fmt: skip
        return self.topics[0]

    @property
    def name(self) -> str:
        """Its name, in `$management` too."""
        source, queue, key = (quote(text, safe="") for text in (self.source, self.queue, self.key))
        return f"src={source};dstq={queue};key={key};args="

    @property
    def location(self) -> str:
        """Its path."""
        return f"/bindings/{self.name}"

    @property
    def described(self) -> dict[str, Any]:
        """As replies tell it."""
        return {
            "source": self.source, "destination_queue": self.queue, "binding_key": self.key,
            "arguments": {}, "location": self.location,
        }  # fmt: skip


def binding_of(fields: dict[str, Any], source: str, queue: str, key: str) -> Binding:
    """The binding that these fields name, by what they are called there. Raises Unmanageable."""
    found = [fields.get(name) for name in (source, queue, key)]
    if not all(isinstance(text, str) for text in found) or not found[0] or not found[1]:
        raise Unmanageable(
            BAD_REQUEST, f"expected {source} and {queue}, which are not empty, and {key}, got "
            f"{fields!r:.120}: only queues are bound"
        )  # fmt: skip
    return Binding(str(found[0]), str(found[2]), str(found[1]))


def fields_of(segment: str) -> dict[str, str]:
    """The fields of `src=...;dstq=...;key=...;args=...`, the name of a binding."""
    parts = segment.split(";", FIELDS_MAX)
    return {name: unquote(value) for name, _, value in (part.partition("=") for part in parts)}

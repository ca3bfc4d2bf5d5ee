"""What a message says of its place in a sequenced stream.

    message annotation   application property (JMS)   link property
    x-opt-seq-stream     seq_stream                   seq-stream       the stream, 1 to 128 characters
    x-opt-seq-id         seq_id                                        its sequence, a ulong above 0
    x-opt-seq-no         seq_no                                        the number there, a uint above 0
    x-opt-seq-prev       seq_prev                                      the number of the one before, or 0

Each of them by one of the ways, the numbers of any integral type; by two ways it has to be the same. Only
messages that have such a section are looked into, and decoded only where a name like these stands in it.
"""

from __future__ import annotations

from typing import Any, Final

from amqp_broker.coordinator import Numbering
from amqp_broker.frames import (
    MAPPED,
    PLAIN,
    SECTION_NODES_MAX,
    Byte,
    DecodeError,
    Error,
    Int,
    Long,
    Message,
    Short,
    Symbol,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    body_shape,
    decode_value,
    find_maps,
)

STREAM_PROPERTY: Final = "seq-stream"
STREAM_CHARACTERS: Final = 128  # the name is a key of the store, and stands in each row
MISSING: Final = Error(
    condition="seq:missing",
    description="expected a stream, an id, a number and a prev: here every message has its place in a stream",
)

_INVALID: Final = "amqp:invalid-field"
_INTEGRAL: Final = (Ulong, Uint, Long, Int, Ushort, Short, Ubyte, Byte)
_ANNOTATION_MARK: Final = b"x-opt-seq-"
_PROPERTY_MARK: Final = b"seq_"
_FIELDS: Final = tuple(
    [(field, Symbol(f"x-opt-seq-{field}"), f"seq_{field}") for field in ("stream", "id", "no", "prev")]
)


class Place:
    """The place that a message has by its fields, which are well-formed (row 0 of the table)."""

    __slots__ = ("numbering", "stream")

    def __init__(self, stream: str, numbering: Numbering) -> None:
        self.stream = stream
        self.numbering = numbering


class _Malformed(Exception):
    """The fields cannot be taken; the text says what was expected."""


def place_of(body: bytes, link_stream: str | None) -> Place | Error | None:
    """The place of a message, what is wrong with its fields, or None: it has none. `body` are whole sections
    without the header; `link_stream` is the stream that its link named.
    """
    try:
        values = _values(body)
        if not values:
            return None if link_stream is None else MISSING
        if link_stream is not None and values.setdefault("stream", link_stream) != link_stream:
            raise _Malformed(f"the link is of stream {link_stream!r}, the message of {values['stream']!r}")
        absent = [field for field in ("stream", "id", "no", "prev") if field not in values]
        if absent:
            raise _Malformed(f"expected seq {', seq '.join(absent)} beside the fields that are there")
        numbering = Numbering(values["id"], values["no"], values["prev"])
        problem = stream_problem(values["stream"]) or numbering.problem()
        if problem is not None:
            raise _Malformed(problem)
        return Place(values["stream"], numbering)
    except _Malformed as malformed:
        return Error(condition=_INVALID, description=str(malformed))
    except DecodeError as error:
        return Error(condition=_INVALID, description=f"its sections cannot be read: {error.description}")


def stream_problem(stream: object) -> str | None:
    """Why this can be no stream's name, or None."""
    if isinstance(stream, str) and 0 < len(stream) <= STREAM_CHARACTERS:
        return None
    return f"expected a stream of 1 to {STREAM_CHARACTERS} characters as a string, got {stream!r:.80}"


def stream_property(properties: dict[str, Any] | None) -> str | Error | None:
    """The stream that a link's properties name for all its messages, or what is wrong with it."""
    stream = None if properties is None else properties.get(STREAM_PROPERTY)
    if stream is None:
        return None
    problem = stream_problem(stream)
    if problem is not None:
        return Error(condition=_INVALID, description=f"link property {STREAM_PROPERTY}: {problem}")
    assert isinstance(stream, str), "stream_problem has looked"
    return stream


def _values(body: bytes) -> dict[str, Any]:
    """The fields that are there, by name: the stream as it came, the others as numbers."""
    annotations, properties = _maps(body)
    values: dict[str, Any] = {}
    if annotations is None and properties is None:
        return values
    for field, symbol, name in _FIELDS:
        annotated = None if annotations is None else annotations.get(symbol)
        stated = None if properties is None else properties.get(name)
        for value in (annotated, stated):
            if value is None:
                continue
            if field != "stream":
                value = _number(field, value)
            if values.setdefault(field, value) != value:
                raise _Malformed(
                    f"message annotation {symbol.value} says {values[field]!r:.80}, "
                    f"application property {name} says {value!r:.80}"
                )
    return values


def _number(field: str, value: object) -> int:
    if not isinstance(value, _INTEGRAL):
        raise _Malformed(f"expected an integral seq {field}, got {type(value).__name__} {value!r:.80}")
    return value.value


def _maps(body: bytes) -> tuple[dict[Any, Any] | None, dict[Any, Any] | None]:
    """Message-annotations and application-properties, where something in them looks like a field."""
    shape = body_shape(body)
    if shape == PLAIN:
        return None, None
    if shape != MAPPED:
        if body.find(_ANNOTATION_MARK) < 0 and body.find(_PROPERTY_MARK) < 0:
            return None, None
        message = Message(body)
        return message.message_annotations, message.application_properties
    start, end, properties_start, properties_end = find_maps(body)
    annotations = properties = None
    if start >= 0 and body.find(_ANNOTATION_MARK, start, end) >= 0:
        annotations = _decoded(body, start)
    if properties_start >= 0 and body.find(_PROPERTY_MARK, properties_start, properties_end) >= 0:
        properties = _decoded(body, properties_start)
    return annotations, properties


def _decoded(body: bytes, start: int) -> dict[Any, Any]:
    found, _ = decode_value(body, start, SECTION_NODES_MAX)
    assert isinstance(found, dict), "body_shape saw a map"
    return found

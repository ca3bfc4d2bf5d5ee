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

from amqp_broker.coordinator.sequences import Numbering
from amqp_broker.frames import (
    INTEGERS,
    SECTION_NODES_MAX,
    DecodeError,
    Error,
    Message,
    Symbol,
    decode_value,
)
from amqp_broker.frames.flat_maps import read_entries
from amqp_broker.frames.message_peek import find_maps
from amqp_broker.places import Place

STREAM_PROPERTY: Final = "seq-stream"
STREAM_CHARACTERS: Final = 128  # the name is a key of the store, and stands in each row
MISSING: Final = Error(
    condition="seq:missing",
    description="expected a stream, an id, a number and a prev: here every message has its place in a stream",
)

SEARCHED_OCTETS: Final = 1_024  # a search in so many costs less than to find the sections; beyond it does not
_INVALID: Final = "amqp:invalid-field"
_ANNOTATION_MARK: Final = b"x-opt-seq-"
_PROPERTY_MARK: Final = b"seq_"
_MARK: Final = b"seq"
_FIELDS: Final = ("stream", "id", "no", "prev")
_ANNOTATIONS: Final = {f"x-opt-seq-{field}".encode(): field for field in _FIELDS}
_SYMBOLS: Final[dict[Any, str]] = {Symbol(f"x-opt-seq-{field}"): field for field in _FIELDS}
_PROPERTIES: Final = {f"seq_{field}".encode(): field for field in _FIELDS}
_STRINGS: Final[dict[Any, str]] = {f"seq_{field}": field for field in _FIELDS}


class _Malformed(Exception):
    """The fields cannot be taken; the text says what was expected."""


def place_of(body: bytes, link_stream: str | None) -> Place | Error | None:
    """The place of a message, what is wrong with its fields, or None: it has none. `body` are whole sections
    without the header; `link_stream` is the stream that its link named.
    """
    if len(body) <= SEARCHED_OCTETS and _MARK not in body:
        return None if link_stream is None else MISSING
    try:
        values = _values(body)
        if not values:
            return None if link_stream is None else MISSING
        if link_stream is not None and values.setdefault("stream", link_stream) != link_stream:
            raise _Malformed(f"the link is of stream {link_stream!r}, the message of {values['stream']!r}")
        if len(values) < len(_FIELDS):
            absent = [field for field in _FIELDS if field not in values]
            raise _Malformed(f"expected seq {', seq '.join(absent)} beside the fields that are there")
        seq_id, seq_no, seq_prev = values["id"], values["no"], values["prev"]
        if type(seq_id) is not int or type(seq_no) is not int or type(seq_prev) is not int:
            shown = ", ".join(f"{each!r:.40}" for each in (seq_id, seq_no, seq_prev))
            raise _Malformed(f"expected seq id, no and prev of integral types, got {shown}")
        numbering = Numbering(seq_id, seq_no, seq_prev)
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
    found = find_maps(body)
    if found is None:
        message = Message(body)
        return _merged(
            _fields(message.message_annotations, _SYMBOLS),
            _fields(message.application_properties, _STRINGS),
        )
    start, end, properties_start, properties_end = found
    annotated: dict[str, Any] = {}
    stated: dict[str, Any] = {}
    if start >= 0 and body.find(_ANNOTATION_MARK, start, end) >= 0:
        annotated = _entries(body, start, end, True)
    if properties_start >= 0 and body.find(_PROPERTY_MARK, properties_start, properties_end) >= 0:
        stated = _entries(body, properties_start, properties_end, False)
    return _merged(annotated, stated) if stated else annotated


def _entries(body: bytes, start: int, end: int, symbols: bool) -> dict[str, Any]:
    entries = read_entries(body, start, end, symbols, _ANNOTATIONS if symbols else _PROPERTIES)
    if entries is not None:
        return entries
    found, _ = decode_value(body, start, SECTION_NODES_MAX)
    assert isinstance(found, dict), "the section is a map"
    return _fields(found, _SYMBOLS if symbols else _STRINGS)


def _fields(section: dict[Any, Any] | None, keys: dict[Any, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, field in keys.items():
        value = None if section is None else section.get(key)
        if value is None:
            continue
        if field != "stream" and isinstance(value, INTEGERS):
            fields[field] = value.value
        else:
            fields[field] = value
    return fields


def _merged(annotated: dict[str, Any], stated: dict[str, Any]) -> dict[str, Any]:
    for field, value in stated.items():
        if annotated.setdefault(field, value) != value:
            raise _Malformed(
                f"message annotation x-opt-seq-{field} says {annotated[field]!r:.80}, "
                f"application property seq_{field} says {value!r:.80}"
            )
    return annotated

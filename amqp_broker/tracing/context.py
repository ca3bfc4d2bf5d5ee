"""The trace context that a message carries (W3C Trace Context, and its mapping to AMQP). Read, never written.

    message-annotations      traceparent, tracestate    first: middleware on the way has put them there
    application-properties   traceparent, tracestate    else: the sender's, which nobody may change

    00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01    a string, as OpenTelemetry's libraries write it
    version  trace-id (16 octets)       span-id       flags    binary: 00, 00 trace-id, 01 span-id, 02 flags

What is not as it should be is as if it were not there: a trace is never a reason to refuse a message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from amqp_broker.frames import DecodeError, Message
from amqp_broker.frames.flat_maps import read_entries
from amqp_broker.frames.message_peek import find_maps

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
LOOKED_AT_BYTES: Final = 8_192
"""Of a message: where no `traceparent` begins in so many octets, there is none."""
TRACEPARENT_CHARACTERS: Final = 128  # today 55; a later version may have more behind them
TRACESTATE_CHARACTERS: Final = 512  # which everybody has to pass on
_BINARY_BYTES: Final = 29

_NEEDLE: Final = TRACEPARENT.encode()
_BEGIN: Final = bytes((55,)) + b"00-"  # of a short string, behind its constructor: its size, the version
_FLAG: Final = 2 + 54  # where the digit stands in it that has the flag
_NOT_SAMPLED: Final = frozenset(bytes((digit,)) for digit in b"02468ace")
_NAMES: Final = {name.encode(): name for name in (TRACEPARENT, TRACESTATE)}
_TEXT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[ -~]*)?")
_MEMBERS: Final = 32
_MEMBER: Final = re.compile(
    r"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[ -+\--<>-~]{0,255}[!-+\--<>-~]"
)
"""Of a tracestate, by its grammar: the libraries log each that they do not take."""


class TraceContext(NamedTuple):
    """Which span of which trace a message comes from, `state` as it came; its sender records that trace."""

    trace_id: int
    span_id: int
    state: str


def context_of(body: bytes) -> TraceContext | None:
    """That of an encoded message without its header and its delivery-annotations, None where there is none,
    or its sender does not record the trace.
    """
    at = body.find(_NEEDLE, 0, LOOKED_AT_BYTES)
    if at < 0:
        return None
    value = at + len(_NEEDLE)
    if body[value + 1 : value + 5] == _BEGIN and body[value + _FLAG : value + _FLAG + 1] in _NOT_SAMPLED:
        return None  # as most are, where a part of all traces is recorded
    for fields in _fields_of(body):
        traceparent = fields.get(TRACEPARENT)
        found = _of_binary(traceparent) if isinstance(traceparent, bytes) else _of_text(traceparent)
        if found is not None:
            trace_id, span_id, flags = found
            return TraceContext(trace_id, span_id, _state_of(fields.get(TRACESTATE))) if flags & 1 else None
    return None


def _fields_of(body: bytes) -> list[Mapping[Any, Any]]:
    """Both maps, the annotations first, as far as they are there."""
    places = find_maps(body)
    if places is None:
        return _decoded(body)
    start, end, named, named_end = places
    annotations = {} if start < 0 else read_entries(body, start, end, True, _NAMES)
    properties = {} if named < 0 else read_entries(body, named, named_end, False, _NAMES)
    if annotations is None or properties is None:
        return _decoded(body)
    return [annotations, properties]


def _decoded(body: bytes) -> list[Mapping[Any, Any]]:
    """The same where a layout is rare."""
    try:
        message = Message(body)
        maps = (message.message_annotations or {}, message.application_properties or {})
        return [{getattr(key, "value", key): value for key, value in found.items()} for found in maps]
    except DecodeError:
        return []


def _state_of(value: object) -> str:
    """A tracestate, "" where it is none."""
    if not isinstance(value, str) or len(value) > TRACESTATE_CHARACTERS:
        return ""
    members = [member.strip(" \t") for member in value.split(",")]
    whole = len(members) <= _MEMBERS and all(_MEMBER.fullmatch(member) for member in members)
    return ",".join(members) if whole else ""


def _of_text(value: object) -> tuple[int, int, int] | None:
    if not isinstance(value, str) or len(value) > TRACEPARENT_CHARACTERS:
        return None
    match = _TEXT.fullmatch(value)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more is not None):
        return None
    return _if_any(int(trace_id, 16), int(span_id, 16), int(flags, 16))


def _of_binary(value: bytes) -> tuple[int, int, int] | None:
    if len(value) != _BINARY_BYTES or (value[0], value[1], value[18], value[27]) != (0, 0, 1, 2):
        return None
    return _if_any(int.from_bytes(value[2:18], "big"), int.from_bytes(value[19:27], "big"), value[28])


def _if_any(trace_id: int, span_id: int, flags: int) -> tuple[int, int, int] | None:
    """Ids of nothing but zeros are none."""
    return (trace_id, span_id, flags) if trace_id and span_id else None

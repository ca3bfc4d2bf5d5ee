"""Our codec and python-qpid-proton's, each reading what the other wrote.

Proton's values are walked node by node and brought into tuples of type and content, so that nothing is
compared by way of Python's equality, for which a uint 1 and a long 1 are the same.
"""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Data, symbol, ulong
from proton import Message as ProtonMessage

from amqp_broker.frames import (
    AmqpValue,
    Array,
    Described,
    Double,
    Float,
    Header,
    Message,
    Properties,
    Symbol,
    Ulong,
    decode_value,
    encode_composite,
    encode_message,
    encode_value,
)
from tests import strategies

# Our class, the standard's name, and what proton's Data calls it.
NAMES = {
    "Ubyte": "ubyte",
    "Ushort": "ushort",
    "Uint": "uint",
    "Ulong": "ulong",
    "Byte": "byte",
    "Short": "short",
    "Int": "int",
    "Long": "long",
    "Float": "float",
    "Double": "double",
    "Decimal32": "decimal32",
    "Decimal64": "decimal64",
    "Decimal128": "decimal128",
    "Char": "char",
    "Timestamp": "timestamp",
    "Symbol": "symbol",
    "NoneType": "null",
    "bool": "boolean",
    "bytes": "binary",
    "str": "string",
    "UUID": "uuid",
    "list": "list",
    "dict": "map",
    "Array": "array",
    "Described": "described",
}
PROTON_NAMES = {"boolean": "bool"}
CODES = {name: getattr(Data, PROTON_NAMES.get(name, name).upper()) for name in NAMES.values()}
NAME_OF_CODE = {code: name for name, code in CODES.items()}


def ours(value: Any) -> Any:
    """Type and content of one of our values."""
    name = NAMES[type(value).__name__]
    if name == "list":
        return name, [ours(item) for item in value]
    if name == "map":
        return name, [(ours(key), ours(item)) for key, item in value.items()]
    if name == "described":
        return name, ours(value.descriptor), ours(value.value)
    if name == "array":
        return name, value.element_type, [ours(d) for d in value.descriptors], [ours(i) for i in value.items]
    plain = getattr(value, "value", value)
    if name in ("decimal32", "decimal64"):
        plain = int.from_bytes(plain, "big")
    return name, bits(plain)


def bits(value: Any) -> Any:
    """A float as its octets, so that a NaN can be compared."""
    return struct.pack(">d", value) if isinstance(value, float) else value


def theirs(data: Data) -> Any:
    """Type and content of the current node of proton's data."""
    name = NAME_OF_CODE[data.type()]
    if name == "null":
        return name, None
    if name == "array":
        count, described, element = data.get_array()
        data.enter()
        descriptors = []
        if described:
            data.next()
            descriptors.append(theirs(data))
        items = []
        for _ in range(count):
            data.next()
            items.append(theirs(data))
        data.exit()
        return name, NAME_OF_CODE[element], descriptors, items
    if name in ("list", "map", "described"):
        data.enter()
        items = []
        while data.next():
            items.append(theirs(data))
        data.exit()
        if name == "list":
            return name, items
        if name == "map":
            return name, list(zip(items[::2], items[1::2], strict=True))
        return name, items[0], items[1]
    value = getattr(data, "get_" + PROTON_NAMES.get(name, name))()
    if name == "float" or name == "double":
        return name, bits(float(value))
    if name in ("binary", "decimal128"):
        return name, bytes(value)
    if name in ("char", "string", "symbol"):
        return name, str(value)
    return name, value if isinstance(value, (bool, uuid.UUID)) else int(value)


def put(data: Data, value: Any) -> None:
    """Puts one of our values into proton's data."""
    name = NAMES[type(value).__name__]
    if name == "null":
        data.put_null()
    elif name in ("list", "map"):
        getattr(data, "put_" + name)()
        data.enter()
        for item in value if name == "list" else [part for pair in value.items() for part in pair]:
            put(data, item)
        data.exit()
    elif name == "described":
        data.put_described()
        data.enter()
        put(data, value.descriptor)
        put(data, value.value)
        data.exit()
    elif name == "array":
        data.put_array(bool(value.descriptors), CODES[value.element_type])
        data.enter()
        for item in [*value.descriptors, *value.items]:
            put(data, item)
        data.exit()
    else:
        plain = getattr(value, "value", value)
        if name in ("decimal32", "decimal64"):
            plain = int.from_bytes(plain, "big")
        getattr(data, "put_" + PROTON_NAMES.get(name, name))(plain)


def proton_can(value: Any) -> bool:
    """Whether proton has the value: it describes an array's elements at most once."""
    if isinstance(value, Array):
        return len(value.descriptors) <= 1 and all(proton_can(item) for item in value.items)
    if isinstance(value, Described):
        return proton_can(value.value)
    if isinstance(value, list):
        return all(proton_can(item) for item in value)
    if isinstance(value, dict):
        return all(proton_can(part) for pair in value.items() for part in pair)
    return True


VALUES = strategies.values().filter(proton_can)


@settings(max_examples=500, deadline=None)
@given(VALUES)
def test_proton_reads_what_we_write(value: Any) -> None:
    """Every value, nested, in the encoding that our encoder chooses."""
    octets = encode_value(value)
    data = Data()
    assert data.decode(octets) == len(octets)
    data.rewind()
    data.next()
    assert theirs(data) == ours(value)


@settings(max_examples=500, deadline=None)
@given(VALUES)
def test_we_read_what_proton_writes(value: Any) -> None:
    """Every value, nested, in the encoding that proton's encoder chooses."""
    data = Data()
    put(data, value)
    octets = bytes(data.encode())
    decoded, offset = decode_value(octets)
    assert offset == len(octets)
    assert ours(decoded) == ours(value)


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_both_read_every_encoding_alike(draw: st.DataObject) -> None:
    """Any encodings at any level: proton and we find the same value."""
    value = draw.draw(VALUES)
    octets = draw.draw(strategies.encoded(value))
    data = Data()
    assert data.decode(octets) == len(octets)
    data.rewind()
    data.next()
    assert theirs(data) == ours(decode_value(octets)[0])


@settings(max_examples=300, deadline=None)
@given(strategies.composites())
def test_proton_reads_our_composites(composite: Any) -> None:
    """Performatives, termini, outcomes and the others, as described lists."""
    octets = encode_composite(composite)
    data = Data()
    assert data.decode(octets) == len(octets)
    data.rewind()
    data.next()
    assert theirs(data) == ours(decode_value(octets)[0])


def test_proton_reads_our_message() -> None:
    """Header, annotations, properties, application-properties and body of a message that we wrote."""
    octets = encode_message(
        header=Header(durable=True, priority=7, ttl=5_000, first_acquirer=True, delivery_count=2),
        message_annotations={"x-opt-key": "value"},
        properties=Properties(
            message_id=Ulong(7),
            user_id=b"user",
            to="queue",
            subject="s",
            reply_to="r",
            correlation_id="c",
            content_type="text/plain",
            content_encoding="gzip",
            absolute_expiry_time=1_000,
            creation_time=2_000,
            group_id="g",
            group_sequence=3,
            reply_to_group_id="rg",
        ),
        application_properties={"key": 1, "flag": True},
        body={"k": [Ulong(1), None]},
    )
    message = ProtonMessage()
    message.decode(octets)
    assert (message.durable, message.priority, message.ttl, message.first_acquirer) == (True, 7, 5.0, True)
    assert message.delivery_count == 2
    assert (message.id, message.user_id, message.address, message.subject) == (
        ulong(7),
        b"user",
        "queue",
        "s",
    )
    assert (message.reply_to, message.correlation_id, message.content_type) == ("r", "c", "text/plain")
    assert (message.content_encoding, message.expiry_time, message.creation_time) == ("gzip", 1.0, 2.0)
    assert (message.group_id, message.group_sequence, message.reply_to_group_id) == ("g", 3, "rg")
    assert message.annotations == {symbol("x-opt-key"): "value"}
    assert message.properties == {"key": 1, "flag": True}
    assert message.body == {"k": [ulong(1), None]}


def test_we_read_protons_message() -> None:
    """The same the other way, through sections that are decoded on demand."""
    sent = ProtonMessage(
        body=["text", 1],
        durable=True,
        priority=7,
        ttl=5.0,
        id=uuid.UUID(int=1),
        address="queue",
        user_id=b"user",
        content_type="text/plain",
        creation_time=2.0,
        group_sequence=3,
        annotations={symbol("x-opt-key"): "value"},
        instructions={symbol("x-opt-once"): True},
        properties={"key": 1.5},
    )
    message = Message(bytes(sent.encode()))
    message.check_sections()
    assert message.header == Header(durable=True, priority=7, ttl=5_000)
    assert message.delivery_annotations == {Symbol("x-opt-once"): True}
    assert message.message_annotations == {Symbol("x-opt-key"): "value"}
    assert message.properties == Properties(
        message_id=uuid.UUID(int=1),
        user_id=b"user",
        to="queue",
        content_type="text/plain",
        creation_time=2_000,
        group_sequence=3,
    )
    assert message.application_properties == {"key": Double(1.5)}
    (body,) = message.body_sections()
    assert isinstance(body, AmqpValue)
    assert body.value[0] == "text"


def test_protons_empty_message_passes() -> None:
    """An empty Message of proton has no body section, and must be taken."""
    message = Message(bytes(ProtonMessage().encode()))
    message.check_sections()
    assert message.header.durable in (None, False)


@pytest.mark.parametrize("value", [Float(float("nan")), Double(float("-inf")), Double(float("nan"))])
def test_numbers_that_are_none(value: Any) -> None:
    """NaN and infinity survive both ways."""
    data = Data()
    data.decode(encode_value(value))
    data.rewind()
    data.next()
    assert theirs(data) == ours(value)

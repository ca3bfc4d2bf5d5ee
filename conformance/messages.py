"""Messages for scenarios: built section by section as octets, and taken apart again without losing one
(3.2).
"""

from typing import Any

from amqp_broker.frames import (
    Described,
    Error,
    Header,
    Properties,
    Ulong,
    decode_composite,
    decode_value,
    encode_value,
    plain_value,
)

HEADER = 0x70
DELIVERY_ANNOTATIONS = 0x71
MESSAGE_ANNOTATIONS = 0x72
PROPERTIES = 0x73
APPLICATION_PROPERTIES = 0x74
DATA = 0x75
AMQP_SEQUENCE = 0x76
AMQP_VALUE = 0x77
FOOTER = 0x78

BARE = (PROPERTIES, APPLICATION_PROPERTIES, DATA, AMQP_SEQUENCE, AMQP_VALUE)
"""Sections of the bare message; the footer belongs to the annotated message (3.2)."""


def section(code: int, value: Any) -> bytes:
    """Returns one section: a described value with the section's numeric descriptor."""
    return encode_value(Described(Ulong(code), value))


def data(octets: bytes) -> bytes:
    """Returns a data section (3.2.6)."""
    return section(DATA, octets)


def split_sections(payload: bytes) -> list[tuple[int, bytes]]:
    """Returns (code, octets) of each section, in order; octets are as they came."""
    sections: list[tuple[int, bytes]] = []
    offset = 0
    while offset < len(payload):
        value, end = decode_value(payload, offset)
        assert isinstance(value, Described), f"a section is a described value, not {value!r}"
        descriptor = value.descriptor
        assert isinstance(descriptor, Ulong), f"descriptor {descriptor!r}"
        sections.append((descriptor.value, payload[offset:end]))
        offset = end
    return sections


def bare_octets(payload: bytes) -> bytes:
    """Returns the octets of the bare message: what no intermediary may change (3.2)."""
    return b"".join(octets for code, octets in split_sections(payload) if code in BARE)


def header_of(payload: bytes) -> Header:
    """Returns the header section, or the header that its absence stands for (3.2.1)."""
    for code, octets in split_sections(payload):
        if code == HEADER:
            header = decode_composite(octets)[0]
            assert isinstance(header, Header)
            return header
    return Header()


def properties_of(payload: bytes) -> Properties | None:
    """Returns the properties section, or None."""
    for code, octets in split_sections(payload):
        if code == PROPERTIES:
            properties = decode_composite(octets)[0]
            assert isinstance(properties, Properties)
            return properties
    return None


def map_of(payload: bytes, code: int) -> dict[Any, Any]:
    """Returns a section that is a map (annotations, application-properties); empty when it is not there."""
    for got, octets in split_sections(payload):
        if got == code:
            value, _ = decode_value(octets)
            assert isinstance(value, Described) and isinstance(value.value, dict)
            return {str(plain_value(key)): item for key, item in value.value.items()}
    return {}


def info_of(error: Error) -> dict[str, Any]:
    """Returns the info map of an error, as plain values."""
    found: dict[str, Any] = plain_value(error.info or {})
    return found

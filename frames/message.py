"""A message as its retained bytes: sections are found by their announced sizes, and decoded when asked for
(3.2).

                                                           bare message
                                      .--------------------------+---------------------------.
    +--------+-----------+-----------+------------+--------------+---------------------------+--------+
    | header | delivery- | message-  | properties | application- | data ... | sequence ...   | footer |
    | 0x70   | annot.    | annot.    | 0x73       | properties   | | value                   | 0x78   |
    |        | 0x71      | 0x72      |            | 0x74         | 0x75, 0x76, 0x77          |        |
    +--------+-----------+-----------+------------+--------------+---------------------------+--------+
    each section is a described value: 0x00 0x53 code, constructor, size, data

The bare message is never encoded again: `Message.bare` are the sender's octets.
"""

from typing import Any

from amqp_broker.frames.composite_decoding import decode_composite, read_resolved
from amqp_broker.frames.decoding import Decoder, decode_value, skip_data, skip_value
from amqp_broker.frames.errors import DecodeError
from amqp_broker.frames.limits import DEPTH_MAX, SECTION_NODES_MAX, SECTIONS_MAX, ZERO_WIDTH_ELEMENTS_MAX
from amqp_broker.frames.primitive_types import name_of_code
from amqp_broker.frames.printing import cut, shorten
from amqp_broker.frames.sections import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SECTION_CONSTRUCTORS,
    SECTION_NAMES,
    SECTION_SYMBOLS,
    AmqpSequence,
    AmqpValue,
    Data,
    Header,
    Properties,
)
from amqp_broker.frames.values import Array, Described, Symbol, Ulong

Body = Data | AmqpSequence | AmqpValue

_ADDED_SECTIONS = 2  # beyond SECTIONS_MAX: the header and message-annotations that a broker adds


class Message:
    """A received or stored message of message-format 0.

    Sections are looked for from the front and no further than needed: reading the header touches nothing
    behind it. Every attribute raises DecodeError where the sections up to its own are malformed, unknown, out
    of order or repeated.
    """

    __slots__ = ("_codes", "_ends", "_header", "_scanned", "_starts", "_values", "data")

    def __init__(self, data: bytes) -> None:
        self.data: bytes = data
        self._codes: list[int] = []
        self._starts: list[int] = []
        self._values: list[int] = []
        self._ends: list[int] = []
        self._scanned: int = 0
        self._header: Header | None = None

    def __repr__(self) -> str:
        names = ", ".join(SECTION_NAMES[code] for code in self._codes[:9])
        return cut(f"Message({len(self.data)} octets; seen: {names or 'nothing yet'})")

    def check_sections(self) -> None:
        """Raises DecodeError unless all sections are known, whole, in order, and as often as allowed (3.2).

        Looks at constructors and sizes only. A message without a body passes, although the standard wants
        one: that is what python-qpid-proton sends for an empty Message.
        """
        while self._scan():
            pass

    def check(self) -> None:
        """Raises DecodeError unless the message is as the standard says: its sections (`check_sections`),
        what is in those before and behind the body, and the outermost form of the body (3.2).

        Values of annotations may nest as deep as DEPTH_MAX says; application-properties are simple (3.2.5).
        What is inside of the body is for the receiver to judge.
        """
        self.check_sections()
        if len(self._codes) > SECTIONS_MAX:
            raise _too_many_sections(self._starts[SECTIONS_MAX])
        for code in (DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, FOOTER):
            self._annotations(code)
        self._composite(HEADER)
        self._check_properties()
        for key, value in (self.application_properties or {}).items():
            if isinstance(value, (list, dict, Array, Described)):
                raise DecodeError(
                    f"expected a simple value in application-properties, found {shorten(value)} for "
                    f"{shorten(key)}"
                )
        for code, at, end in zip(self._codes, self._values, self._ends, strict=True):
            if DATA <= code <= AMQP_VALUE:
                _check_outer_form(self.data, at, end)

    def _check_properties(self) -> None:
        found = self.properties
        if found is None:
            return
        for name in ("message_id", "to", "reply_to", "correlation_id"):
            value = getattr(found, name)
            if isinstance(value, Described):
                field = f"properties.{name.replace('_', '-')}"
                raise DecodeError(f"expected a simple value for {field}, found {shorten(value)}")

    @property
    def header(self) -> Header:
        """The header; one without any field where the section is omitted."""
        if self._header is None:
            found = self._composite(HEADER)
            self._header = found if isinstance(found, Header) else Header()
        return self._header

    @property
    def delivery_annotations(self) -> dict[Any, Any] | None:
        """Keys are Symbol or Ulong; None where the section is omitted."""
        return self._annotations(DELIVERY_ANNOTATIONS)

    @property
    def message_annotations(self) -> dict[Any, Any] | None:
        """Keys are Symbol or Ulong; None where the section is omitted."""
        return self._annotations(MESSAGE_ANNOTATIONS)

    @property
    def properties(self) -> Properties | None:
        """The properties; None where the section is omitted."""
        found = self._composite(PROPERTIES)
        return found if isinstance(found, Properties) else None

    @property
    def application_properties(self) -> dict[str, Any] | None:
        """Keys are str; None where the section is omitted."""
        index = self._find(APPLICATION_PROPERTIES)
        if index < 0:
            return None
        found = self._map(index)
        for key in found:
            if not isinstance(key, str):
                raise DecodeError(f"expected a string as key of application-properties, found {shorten(key)}")
        return found

    @property
    def footer(self) -> dict[Any, Any] | None:
        """Keys are Symbol or Ulong; None where the section is omitted."""
        return self._annotations(FOOTER)

    def body_sections(self) -> list[Body]:
        """The decoded sections of the body, in order; empty where there is none.

        A value whose descriptor is a composite's of the standard (declare and discharge are sent so) comes as
        that.
        """
        self.check_sections()
        return [self._body(index) for index, code in enumerate(self._codes) if DATA <= code <= AMQP_VALUE]

    @property
    def after_header_offset(self) -> int:
        """The offset of the first byte after the header; 0 where it is omitted."""
        return self._after(HEADER)

    @property
    def after_delivery_annotations_offset(self) -> int:
        """The offset of the first byte after header and delivery-annotations, as far as they are there."""
        return self._after(DELIVERY_ANNOTATIONS)

    @property
    def after_message_annotations_offset(self) -> int:
        """The offset of the first byte of the bare message: after header and both kinds of annotations."""
        return self._after(MESSAGE_ANNOTATIONS)

    @property
    def message_annotations_place(self) -> tuple[int, int]:
        """Where the map of the message-annotations begins and ends; twice the same offset, that of the first
        byte behind where it would be, where the section is omitted.
        """
        index = self._find(MESSAGE_ANNOTATIONS)
        if index < 0:
            return (self.after_delivery_annotations_offset,) * 2
        return self._values[index], self._ends[index]

    @property
    def footer_offset(self) -> int:
        """The offset of the first byte of the footer, or the end of the message."""
        index = self._find(FOOTER)
        return len(self.data) if index < 0 else self._starts[index]

    @property
    def body(self) -> bytes:
        """The sections of the body, octet for octet; empty where there is none."""
        return self.data[self._after(APPLICATION_PROPERTIES) : self.footer_offset]

    @property
    def bare(self) -> bytes:
        """The bare message: properties, application-properties and body, octet for octet."""
        return self.data[self.after_message_annotations_offset : self.footer_offset]

    def _after(self, code: int) -> int:
        self._find(code)
        after = 0
        for seen, end in zip(self._codes, self._ends, strict=True):
            if seen <= code:
                after = end
        return after

    def _find(self, code: int) -> int:
        """The index of the section, -1 where there is none; looks no further than the first section behind
        it.
        """
        while not self._codes or self._codes[-1] < code:
            if not self._scan():
                return -1
        for index, seen in enumerate(self._codes):
            if seen == code:
                return index
        return -1

    def _scan(self) -> bool:
        """Goes over one more section; False at the end of the message."""
        start = self._scanned
        data = self.data
        end = len(data)
        if start == end:
            return False
        if len(self._codes) >= SECTIONS_MAX + _ADDED_SECTIONS:
            raise _too_many_sections(start)
        code, at = section_code(data, start, end)
        if self._codes:
            check_order(self._codes[-1], code, start)
        if at >= end:
            raise DecodeError(f"section {SECTION_NAMES[code]} is cut off at byte {at}")
        constructor = data[at]
        allowed = SECTION_CONSTRUCTORS[code]
        if allowed and constructor not in allowed:
            found = name_of_code(constructor)
            raise DecodeError(f"section {SECTION_NAMES[code]} cannot be {found}, as found at byte {at}")
        if constructor == 0:
            self._scanned = skip_value(data, at, end)
        else:
            self._scanned = skip_data(data, constructor, at + 1, end)
        self._codes.append(code)
        self._starts.append(start)
        self._values.append(at)
        self._ends.append(self._scanned)
        return True

    def _composite(self, code: int) -> Any:
        index = self._find(code)
        if index < 0:
            return None
        return decode_composite(self.data, self._starts[index], SECTION_NODES_MAX)[0]

    def _annotations(self, code: int) -> dict[Any, Any] | None:
        index = self._find(code)
        if index < 0:
            return None
        found = self._map(index)
        for key in found:
            if not isinstance(key, (Symbol, Ulong)):
                name = SECTION_NAMES[code]
                raise DecodeError(f"expected a symbol or ulong as key of {name}, found {shorten(key)}")
        return found

    def _map(self, index: int) -> dict[Any, Any]:
        found, _ = decode_value(self.data, self._values[index], SECTION_NODES_MAX)
        assert isinstance(found, dict)
        return found

    def _body(self, index: int) -> Body:
        code = self._codes[index]
        decoder = Decoder(self.data, self._values[index], len(self.data) + ZERO_WIDTH_ELEMENTS_MAX)
        value = read_resolved(decoder, self._ends[index], DEPTH_MAX)
        if code == AMQP_VALUE:
            return AmqpValue(value)
        if code == DATA:
            assert isinstance(value, bytes)
            return Data(value)
        assert isinstance(value, list)
        return AmqpSequence(value)


def check_order(last: int, code: int, start: int) -> None:
    """Raises DecodeError where a section cannot follow the section `last` (3.2); 0 is none."""
    if code > last and not (DATA <= last <= AMQP_VALUE and code <= AMQP_VALUE):
        return
    if code == last and (code == DATA or code == AMQP_SEQUENCE):
        return
    raise DecodeError(f"section {SECTION_NAMES[code]} at byte {start} cannot follow {SECTION_NAMES[last]}")


def _too_many_sections(start: int) -> DecodeError:
    return DecodeError(f"expected at most SECTIONS_MAX ({SECTIONS_MAX}) sections, found more at byte {start}")


def _check_outer_form(data: bytes, at: int, end: int) -> None:
    """Raises DecodeError where the value of a body section says a count that its octets cannot hold."""
    while data[at] == 0:  # a descriptor, which was read when the sections were
        at = skip_value(data, at + 1, end)
    code = data[at]
    if code & 0xF0 not in (0xC0, 0xD0):
        return
    Decoder(data, at + 1, 1).end_of_compound(code, end)


def section_code(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Which section begins at `start`, and the offset of its value's constructor."""
    if start + 3 < end and data[start] == 0 and data[start + 1] == 0x53:
        code = data[start + 2]
        if HEADER <= code <= FOOTER:
            return code, start + 3
    if data[start] != 0:
        raise DecodeError(f"expected a section, but found {name_of_code(data[start])} at byte {start}")
    decoder = Decoder(data, start + 1, 1)
    descriptor = decoder.descriptor(end)
    if isinstance(descriptor, Symbol):
        code = SECTION_SYMBOLS.get(descriptor.value, 0)
    else:
        code = descriptor.value if HEADER <= descriptor.value <= FOOTER else 0
    if code == 0:
        raise DecodeError(
            f"expected a section, but found the descriptor {shorten(descriptor)} at byte {start}"
        )
    return code, decoder.pos

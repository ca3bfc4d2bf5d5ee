"""Is the body of a message what the standard says (3.2)? Asked piece by piece, as its octets come.

    head, in memory ..................... | body sections, pieces of any size ........ | footer
    [header] [annotations] [properties] .. | 00 53 75 b0 size octets ... 00 53 75 ..... | 00 53 78 d1 ...

`find_body` says where the head ends: what stands before is a message without a body, which is checked, peeked
at and changed as any other is. `BodyCheck` takes the rest, and says of it what `Message.check` says of the
whole: sections in order, complete, as many as may be, their outermost form, and what is in the footer. It
keeps no more of it than the few octets that say how long something is; the footer is read at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from amqp_broker.frames.decoding import Decoder, skip_data, skip_value
from amqp_broker.frames.errors import DecodeError
from amqp_broker.frames.limits import DEPTH_MAX, SECTIONS_MAX
from amqp_broker.frames.message import Message, check_order, section_code
from amqp_broker.frames.message_encoding import encode_section
from amqp_broker.frames.primitive_types import CATEGORY, COMPOUND, FIXED, SMALLULONG, VBIN8, VBIN32, WIDTH
from amqp_broker.frames.sections import DATA, FOOTER, SECTION_CONSTRUCTORS, SECTION_NAMES, SECTION_SYMBOLS

_SYMBOLS: Final = (0xA3, 0xB3)
_ULONGS: Final = (0x44, 0x53, 0x80)
_NAME_BYTES_MAX: Final = max(map(len, SECTION_SYMBOLS))
_DATA_HEAD: Final = bytes((0, SMALLULONG, DATA))
_ANYWHERE: Final = 1 << 62  # where a value may end that is not here yet


def find_body(octets: bytes) -> tuple[int, int]:
    """Where the first section of the body begins in the octets that a message begins with, and how many stand
    before it; -1 where that is not for certain.
    """
    at = sections = 0
    end = len(octets)
    try:
        while at + 3 < end and octets[at] == 0 and octets[at + 1] == SMALLULONG:
            if octets[at + 2] >= DATA:
                return (at, sections) if octets[at + 2] < FOOTER else (-1, sections)
            at = skip_value(octets, at + 3, end)
            sections += 1
    except DecodeError:
        pass  # cut off, or malformed: the whole message says which
    return -1, sections


def cut_body(octets: bytes) -> bytes:
    """The sections with which a body begins that is cut off: of the last one, if it is of data, as much as is
    there, as a section of its own; else nothing.
    """
    at, end = 0, len(octets)
    try:
        while at + 3 < end:
            at = skip_value(octets, at + 3, end)
        return octets[:at]
    except DecodeError:
        begins = at + (5 if octets[at + 3] == VBIN8 else 8)
        if octets[at : at + 3] == _DATA_HEAD and octets[at + 3] in (VBIN8, VBIN32) and begins <= end:
            return octets[:at] + encode_section(SECTION_NAMES[DATA], octets[begins:])
        return octets[:at]


class BodyCheck:
    """Takes the body and the footer of one message, behind `sections` others."""

    def __init__(self, sections: int) -> None:
        self._sections = sections
        self._last = 0  # code of a section
        self._size = 0  # of all that was taken
        self._footer_at = -1  # where in it the footer begins, once it has
        self._begun = b""  # of a section or a value: too little to say where it ends
        self._left = 0  # octets that are gone over
        self._symbol = False  # they are a symbol
        self._depth = -1  # how often the value that comes next may be described; -1: a section comes next

    @property
    def footer_bytes(self) -> int:
        """Octets of the footer that came so far."""
        return self._size - self._footer_at if self._footer_at >= 0 else 0

    def take(self, piece: bytes) -> None:
        """The next octets. Raises DecodeError; then it is over."""
        octets = self._begun + piece
        begins = self._size - len(self._begun)
        self._size += len(piece)
        self._begun = b""
        at = 0
        while at < len(octets) and self._footer_at < 0:
            if self._left:
                at = self._go_over(octets, at)
                continue
            found = self._section(octets, at) if self._depth < 0 else self._value(octets, at)
            if found < 0:
                self._begun = octets[at:]
                return
            if self._last == FOOTER:
                self._footer_at = begins + at
            at = found

    def end(self, last: Callable[[int], bytes]) -> None:
        """That was all; `last` gives so many octets of its end. Raises DecodeError, and what that does."""
        if self._begun:
            raise DecodeError(f"the last section is cut off after {len(self._begun)} octets")
        if self._left or self._depth >= 0:
            raise DecodeError(f"octets are missing of section {SECTION_NAMES[self._last]}: {self._left or 1}")
        if self._footer_at >= 0:
            Message(last(self.footer_bytes)).check()

    def _go_over(self, octets: bytes, at: int) -> int:
        stop = min(at + self._left, len(octets))
        if self._symbol and not octets[at:stop].isascii():
            raise DecodeError("expected ASCII for a symbol that describes a value (1.6.21)")
        self._left -= stop - at
        return stop

    def _section(self, octets: bytes, at: int) -> int:
        """Where the value of a section begins; -1: too little is there. Raises DecodeError."""
        begin, end = _descriptor(octets, at + 1) if octets[at] == 0 else (at, at)
        if end - begin > _NAME_BYTES_MAX:
            raise DecodeError(f"expected a section, but found a descriptor of {end - begin} octets")
        if begin < 0 or end >= len(octets):
            return -1
        code, pos = section_code(octets, at, len(octets))
        constructor = octets[pos]
        check_order(self._last, code, at)
        allowed = SECTION_CONSTRUCTORS[code]
        if allowed and constructor not in allowed:
            raise DecodeError(f"section {SECTION_NAMES[code]} cannot have the constructor {constructor:#04x}")
        if self._sections >= SECTIONS_MAX:
            raise DecodeError(f"expected at most SECTIONS_MAX ({SECTIONS_MAX}) sections, found more")
        self._sections += 1
        self._last = code
        if code < FOOTER:
            self._depth = DEPTH_MAX
        return pos

    def _value(self, octets: bytes, at: int) -> int:
        """Go over the value that is there, by its announced size, or over its descriptor; its outermost form
        is checked. Where that begins; -1: too little is there. Raises DecodeError.
        """
        code = octets[at]
        if code == 0:
            begin, end = _descriptor(octets, at + 1)
            if begin < 0:
                return -1
            if self._depth == 0:
                raise DecodeError(f"a value is described more than DEPTH_MAX ({DEPTH_MAX}) times")
            self._depth -= 1
            self._left, self._symbol = end - begin, octets[at + 1] in _SYMBOLS
            return begin
        compound = CATEGORY[code] == COMPOUND
        if at + 1 + WIDTH[code] * (1 + compound) > len(octets) and CATEGORY[code] != FIXED:
            return -1
        if compound:
            stop = Decoder(octets, at + 1, 1).end_of_compound(code, _ANYWHERE)
        else:
            stop = skip_data(octets, code, at + 1, _ANYWHERE)
        self._left, self._symbol, self._depth = stop - at, False, -1
        return at


def _descriptor(octets: bytes, at: int) -> tuple[int, int]:
    """Where the octets of the descriptor at `at` begin, behind its constructor and size, and where they end,
    which may be beyond what is there; -1: too little is there. Raises DecodeError.
    """
    if at >= len(octets):
        return -1, -1
    code = octets[at]
    if code not in _SYMBOLS:
        if code not in _ULONGS:
            Decoder(octets, at, 1).descriptor(_ANYWHERE)  # says what it is instead
        return at + 1, at + 1 + WIDTH[code]
    begin = at + 1 + WIDTH[code]
    return (begin, skip_data(octets, code, at + 1, _ANYWHERE)) if begin <= len(octets) else (-1, -1)

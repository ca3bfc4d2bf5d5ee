"""Is the body of a message what the standard says (3.2)? Asked piece by piece, as its octets come.

    head, in memory ..................... | body sections, pieces of any size ........ | footer, kept
    [header] [annotations] [properties] .. | 00 53 75 b0 size octets ... 00 53 75 ..... | 00 53 78 d1 ...

`find_body` says where the head ends: what stands before is a message without a body, which is checked, peeked
at and changed as any other is. `BodyCheck` takes the rest, and says of it what `Message.check` says of the
whole: sections in order, complete, as many as may be, their outermost form, and what is in the footer. It
keeps what a section begins with, until it knows how long that is, and the footer.
"""

from __future__ import annotations

import struct
from typing import Final

from amqp_broker.frames.decoding import Decoder, skip_data, skip_value
from amqp_broker.frames.errors import DecodeError
from amqp_broker.frames.limits import DEPTH_MAX, SECTIONS_MAX
from amqp_broker.frames.message import Message, check_order, section_code
from amqp_broker.frames.message_encoding import encode_section
from amqp_broker.frames.primitive_types import SMALLULONG, VBIN8, VBIN32
from amqp_broker.frames.sections import DATA, FOOTER, SECTION_CONSTRUCTORS, SECTION_NAMES

BEGIN_BYTES_MAX: Final = 4096
"""Octets before the value of a section: descriptors may be symbols, and nest (1.3). What comes of them is
joined with each piece, so a peer that sends single octets is heard with so many, and no more.
"""
FOOTER_BYTES_MAX: Final = 65_536
"""Of the footer, which is in memory: it holds sums and signatures of the message (3.2.9)."""
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
        self._last = 0
        self._left = 0  # octets of the value that is gone over
        self._begun = b""  # of a section whose length is not known yet
        self._footer: list[bytes] = []
        self._footer_bytes = 0

    def take(self, piece: bytes) -> None:
        """The next octets. Raises DecodeError; then it is over."""
        if self._footer:
            self._keep_footer(piece)
            return
        at = min(self._left, len(piece))
        self._left -= at
        if at == len(piece):
            return
        octets = self._begun + piece[at:]
        self._begun = b""
        at = 0
        while at < len(octets):
            found = self._begin(octets, at)
            if found < 0:
                self._begun = octets[at:]
                if len(self._begun) > BEGIN_BYTES_MAX:
                    raise DecodeError(f"a section has more than {BEGIN_BYTES_MAX} octets before its value")
                return
            if self._footer:
                return
            at = found
        self._left = at - len(octets)

    def _keep_footer(self, piece: bytes) -> None:
        self._footer_bytes += len(piece)
        if self._footer_bytes > FOOTER_BYTES_MAX:
            raise DecodeError(f"the footer of a large message has more than {FOOTER_BYTES_MAX} octets")
        self._footer.append(piece)

    def end(self) -> None:
        """That was all. Raises DecodeError."""
        if self._begun:
            raise DecodeError(f"the last section is cut off after {len(self._begun)} octets")
        if self._left:
            raise DecodeError(f"{self._left} octets are missing of section {SECTION_NAMES[self._last]}")
        if self._footer:
            Message(b"".join(self._footer)).check()

    def _begin(self, octets: bytes, at: int) -> int:
        """Where a section ends, which may be beyond what is there; -1: too little is there to say so."""
        try:
            return self._section(octets, at)
        except (IndexError, struct.error):
            return -1

    def _section(self, octets: bytes, at: int) -> int:
        """As `_begin`. Raises IndexError or struct.error where too little is there, DecodeError."""
        if octets[at] == 0:
            _is_there(octets, at + 1)
        code, pos = section_code(octets, at, _ANYWHERE)
        constructor = octets[pos]
        check_order(self._last, code, at)
        allowed = SECTION_CONSTRUCTORS[code]
        if allowed and constructor not in allowed:
            raise DecodeError(f"section {SECTION_NAMES[code]} cannot have the constructor {constructor:#04x}")
        if self._sections >= SECTIONS_MAX:
            raise DecodeError(f"expected at most SECTIONS_MAX ({SECTIONS_MAX}) sections, found more")
        end = pos
        if code < FOOTER:
            end = _end_of_value(octets, pos)
        self._sections += 1
        self._last = code
        if code == FOOTER:
            self._keep_footer(octets[at:])
        return end


def _is_there(octets: bytes, pos: int) -> None:
    """Raises IndexError or struct.error where the descriptor at `pos` is cut off, DecodeError."""
    stop = skip_data(octets, octets[pos], pos + 1, _ANYWHERE)
    if stop > len(octets):
        raise IndexError(stop)


def _end_of_value(octets: bytes, pos: int) -> int:
    """Where a value ends, by its announced size; its outermost form is checked."""
    depth = DEPTH_MAX
    while octets[pos] == 0:
        depth -= 1
        if depth < 0:
            raise DecodeError(f"a value is described more than DEPTH_MAX ({DEPTH_MAX}) times")
        _is_there(octets, pos + 1)
        decoder = Decoder(octets, pos + 1, 1)
        decoder.descriptor(_ANYWHERE)
        pos = decoder.pos
    code = octets[pos]
    if code & 0xF0 in (0xC0, 0xD0):
        decoder = Decoder(octets, pos + 1, 1)
        stop, count = decoder.compound(code, _ANYWHERE)
        if code & 0x0F == 0:
            decoder.check_count(count, stop, "list")
        else:
            decoder.check_map_count(count, stop)
        return stop
    return skip_data(octets, code, pos + 1, _ANYWHERE)

"""Is a message what the standard says, section by section (3.2)? Asked once, when it is taken.

    header | delivery-annot. | message-annot. | properties | application-prop. | body ........... | footer
           |------------------ head -----------------------------------------| only its outer form |

`Message.check` decides; what is here says yes without decoding, for the layouts that clients send. A head
that was walked over is learned as constants and holes: the next one with the same constants is well-formed,
whatever is in its holes, as long as texts are ASCII. So messages of one shape cost one `unpack` and one
comparison.

    00 53 73 c1 .. a3 05 x-opt 81 | ........ | 40 a1 04 | m-17 | ...
    ~~~~~~~~~~ constant ~~~~~~~~~~~  number   constant   text
"""

from __future__ import annotations

import struct
from typing import Final

from amqp_broker.frames.decoding import Decoder, skip_value
from amqp_broker.frames.errors import DecodeError
from amqp_broker.frames.layout import Layout
from amqp_broker.frames.limits import DEPTH_MAX, SECTION_NODES_MAX, SECTIONS_MAX
from amqp_broker.frames.message import Message
from amqp_broker.frames.primitive_types import (
    BOOLEAN,
    LIST0,
    LIST8,
    LIST32,
    MAP8,
    MAP32,
    NULL,
    SMALLULONG,
    STR8,
    STR32,
    SYM8,
    SYM32,
    VBIN8,
    VBIN32,
    WELL_FORMED,
)
from amqp_broker.frames.sections import (
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    PROPERTY_CODES,
    SECTION_CONSTRUCTORS,
)

# A peer chooses its layouts; bounded memos cannot be filled without end, they start again instead.
MAX_KEYS: Final = 256
MAX_LAYOUTS: Final = 4  # of one key
MAX_HEAD_BYTES: Final = 1_024  # of a learned head; a longer one is walked over each time
LEARN_AT_ONCE: Final = 8  # heads of one key; after these only each RARELY-th is learned
RARELY: Final = 64
_DESCRIPTOR_BYTES: Final = 3
_KEY_BYTES: Final = 6  # descriptor, constructor and size of the first section

_SHORT_DATA: Final = b"\x00\x53\x75\xa0"
_HEAD_SECTIONS: Final = 3  # at most, without header and delivery-annotations
# Annotations of so many values, each of which holds at most so many, have fewer than SECTION_NODES_MAX.
_FEW_VALUES: Final = 62
_INNER_NODES: Final = 1_024
assert _FEW_VALUES * _INNER_NODES < SECTION_NODES_MAX
_unpack_u32: Final = struct.Struct(">I").unpack_from

_NARROW: Final = frozenset((VBIN8, STR8, SYM8))
_WIDE: Final = frozenset((VBIN32, STR32, SYM32))
_MAPS: Final = frozenset((MAP8, MAP32))
_LISTS: Final = frozenset((LIST8, LIST32))
_SYMBOLS: Final = frozenset((SYM8, SYM32))

_CONSTRUCTORS: Final = {
    code: SECTION_CONSTRUCTORS[code]
    for code in (MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, DATA, FOOTER)
}

# What is said of a message behind its header.
PLAIN: Final = 0
"""Whole sections in order, and none of them a map of annotations or application-properties."""
MAPPED: Final = 1
"""Whole sections in order, and message-annotations or application-properties are among them."""
UNSURE: Final = 2
"""Malformed, or with delivery-annotations, or of a layout that is not known here: `Message` decides."""
TIMED: Final = 4
"""Added to PLAIN or MAPPED by `check_body`: it may say when it comes or expires (`DELIVERY_KEYS`,
absolute-expiry-time).
"""

DELIVERY_KEYS: Final = b"x-opt-delivery-"
"""What the keys of message-annotations begin with that say when a message is delivered."""
_ABSOLUTE_EXPIRY_TIME: Final = 8  # its place among the properties (3.2.4)


class _Head:
    """The layout of a head that was found well-formed; those of its parts that `texts` names are text."""

    __slots__ = ("behind", "constants", "shape", "size", "texts", "unpack")

    def __init__(self, body: bytes, holes: list[int], size: int, shape: int) -> None:
        parts: list[bytes | str] = []
        texts: list[int] = []
        at = 0
        for number in range(0, len(holes), 2):
            start, stop = holes[number], holes[number + 1]
            if stop < 0:
                stop = -stop
                texts.append(number + 1)
            parts += (body[at:start], f"{stop - start}s")
            at = stop
        layout = Layout((*parts, body[at:size]))
        self.unpack = layout.unpack
        self.constants = layout.constants
        self.texts = texts
        self.size = layout.size
        self.behind = body[size : size + _DESCRIPTOR_BYTES]
        self.shape = shape


class _Learned:
    """The layouts whose first section begins alike, and how many heads of that beginning had none."""

    __slots__ = ("layouts", "missed")

    def __init__(self) -> None:
        self.layouts: list[_Head] = []
        self.missed = 0


_learned: Final[dict[bytes, _Learned]] = {}


def check_body(body: bytes) -> int:
    """PLAIN, MAPPED or UNSURE, as `body_shape`, with TIMED, of an encoded message without its header. Raises
    DecodeError where its sections, or what is in them except the body, are not as the standard says; see
    `Message.check`.
    """
    end = len(body)
    if end > 4 and body[:4] == _SHORT_DATA and body[4] == end - 5:
        return PLAIN
    if end > 3 and body[0] == 0 and body[1] == SMALLULONG and body[2] < DATA:
        learned = _learned.get(body[:_KEY_BYTES])
        if learned is not None:
            for layout in learned.layouts:
                size = layout.size
                if size > end or body[size : size + _DESCRIPTOR_BYTES] != layout.behind:
                    continue
                parts = layout.unpack(body)
                if parts[::2] != layout.constants:
                    continue
                for place in layout.texts:
                    if not parts[place].isascii():
                        break
                else:
                    if _is_flat(body, size, end):
                        return layout.shape
        holes: list[int] = []
        head = _walk(body, end, holes)
        if head > 0 and _is_flat(body, head, end):
            shape = _timed_shape(body)
            if head <= MAX_HEAD_BYTES:
                _learn(body, holes, head, shape, learned)
            return shape
    elif _is_flat(body, 0, end):
        return PLAIN
    Message(body).check()
    return _timed_shape(body)


def _timed_shape(body: bytes) -> int:
    """The shape of a body, with TIMED where that is so."""
    shape = body_shape(body)
    if shape == UNSURE:
        return shape
    end = len(body)
    at = 0
    while at < end and body[at + 2] <= PROPERTIES:
        begin = at + 3
        at = skip_value(body, begin, end)
        if body[begin - 1] == MESSAGE_ANNOTATIONS:
            if body.find(DELIVERY_KEYS, begin, at) >= 0:
                return shape | TIMED
        elif body[begin] != LIST0:
            _, count, field = _compound(body, begin)
            if count > _ABSOLUTE_EXPIRY_TIME:
                for _ in range(_ABSOLUTE_EXPIRY_TIME):
                    field = skip_value(body, field, at)
                if body[field] != NULL:
                    return shape | TIMED
    return shape


def body_shape(body: bytes) -> int:
    """PLAIN, MAPPED or UNSURE, of an encoded message without its header. Sections are walked by constructor
    and size; what is inside is not looked at.
    """
    end = len(body)
    at = 0
    before = 0
    shape = PLAIN
    while at < end:
        if at + 3 >= end or body[at] != 0 or body[at + 1] != SMALLULONG:
            return UNSURE
        code = body[at + 2]
        if code == AMQP_VALUE:
            if before >= DATA:
                return UNSURE
        elif body[at + 3] not in _CONSTRUCTORS.get(code, ()):
            return UNSURE
        elif code < before or (code == before and code != DATA):
            return UNSURE
        elif code == MESSAGE_ANNOTATIONS or code == APPLICATION_PROPERTIES:
            shape = MAPPED
        before = code
        try:
            at = skip_value(body, at + 3, end)
        except DecodeError:
            return UNSURE
    return shape


def _learn(body: bytes, holes: list[int], head: int, shape: int, learned: _Learned | None) -> None:
    """Unless most heads of this beginning are new ones anyway."""
    if learned is None:
        if len(_learned) >= MAX_KEYS:
            _learned.clear()
        learned = _learned[body[:_KEY_BYTES]] = _Learned()
    learned.missed += 1
    if learned.missed > LEARN_AT_ONCE and learned.missed % RARELY:
        return
    layouts = learned.layouts
    layouts.insert(0, _Head(body, holes, head, shape))
    del layouts[MAX_LAYOUTS:]


def _is_flat(body: bytes, at: int, end: int) -> bool:
    """Whether what is left is nothing, data sections, or one amqp-value without inner structure."""
    begin = at
    sections = _HEAD_SECTIONS
    while at < end:
        sections += 1
        if sections > SECTIONS_MAX:
            return False
        if end - at < 4 or body[at] != 0 or body[at + 1] != SMALLULONG:
            return False
        kind = body[at + 2]
        code = body[at + 3]
        at += 4
        if kind == AMQP_VALUE:
            if at != begin + 4:
                return False
            if code in WELL_FORMED:
                return at + WELL_FORMED[code] == end
            if code == LIST0:
                return at == end
        elif kind != DATA:
            return False
        if code == VBIN8 or (code == STR8 and kind == AMQP_VALUE):
            if at >= end:
                return False
            at += 1 + body[at]
        elif code == VBIN32 or (code == STR32 and kind == AMQP_VALUE):
            if at + 4 > end:
                return False
            at += 4 + int(_unpack_u32(body, at)[0])
        else:
            return False
        if kind == AMQP_VALUE:
            return at == end
    return at == end


def _walk(body: bytes, end: int, holes: list[int]) -> int:
    """Where the body begins behind message-annotations, properties and application-properties that are
    well-formed for certain, as far as they are there; -1 where `Message` has to decide. Into `holes` go start
    and stop of each value whose octets may change, the stop of a text as a negative number.
    """
    at = 0
    before = 0
    try:
        while at < end:
            if body[at] != 0 or body[at + 1] != SMALLULONG:
                return -1
            kind = body[at + 2]
            if kind >= DATA:
                return at
            if kind <= before:
                return -1
            before = kind
            if kind == MESSAGE_ANNOTATIONS:
                at = _walk_map(body, at + 3, end, SYM8, holes)
            elif kind == PROPERTIES:
                at = _walk_properties(body, at + 3, end, holes)
            elif kind == APPLICATION_PROPERTIES:
                at = _walk_map(body, at + 3, end, STR8, holes)
            else:
                return -1
            if at < 0:
                return -1
    except (IndexError, struct.error):
        return -1
    return at


def _compound(body: bytes, at: int) -> tuple[int, int, int]:
    """The place where a list or map ends, how many values its count says, and where the first of them is."""
    if body[at] < 0xD0:
        return at + 2 + body[at + 1], body[at + 2], at + 3
    return at + 5 + int(_unpack_u32(body, at + 1)[0]), int(_unpack_u32(body, at + 5)[0]), at + 9


def _walk_map(body: bytes, at: int, end: int, key_code: int, holes: list[int]) -> int:
    """Behind a map of simple values whose keys all have this constructor and are ASCII; -1: not certain."""
    if body[at] not in _MAPS:
        return -1
    stop, count, pos = _compound(body, at)
    if stop > end or count & 1 or count >= SECTION_NODES_MAX:
        return -1
    keys: set[bytes] = set()
    for _ in range(count >> 1):
        if body[pos] != key_code:
            return -1
        value_at = pos + 2 + body[pos + 1]
        key = body[pos + 2 : value_at]
        if key in keys or not key.isascii():
            return -1
        keys.add(key)
        pos = _walk_value(body, value_at, stop, holes)
        if pos < 0:
            if key_code != SYM8 or count > _FEW_VALUES:
                return -1
            pos = _decode_value(body, value_at, stop)
            if pos < 0:
                return -1
    return stop if pos == stop else -1


def _decode_value(body: bytes, at: int, end: int) -> int:
    """Behind a value of any other type in annotations, which is decoded; -1 where it is malformed. Its octets
    are constant in a layout.
    """
    decoder = Decoder(body, at, _INNER_NODES)
    try:
        decoder.value(end, DEPTH_MAX - 1)
    except DecodeError:
        return -1
    return decoder.pos


def _walk_properties(body: bytes, at: int, end: int, holes: list[int]) -> int:
    """Behind the list of properties, each of its declared type; -1: not certain."""
    if body[at] not in _LISTS:
        return at + 1 if body[at] == LIST0 else -1
    stop, count, pos = _compound(body, at)
    if stop > end or count > len(PROPERTY_CODES):
        return -1
    for index in range(count):
        code = body[pos]
        if code == NULL:
            pos += 1
            continue
        if code not in PROPERTY_CODES[index]:
            return -1
        pos = _walk_value(body, pos, stop, holes)
        if pos < 0:
            return -1
    return stop if pos == stop else -1


def _walk_value(body: bytes, at: int, end: int, holes: list[int]) -> int:
    """Behind a simple value before `end`; -1: not certain."""
    code = body[at]
    at += 1
    if code in _NARROW:
        start = at + 1
        stop = start + body[at]
    elif code in WELL_FORMED:
        stop = at + WELL_FORMED[code]
        if stop > end:
            return -1
        if stop > at:
            holes.append(at)
            holes.append(stop)
        return stop
    elif code in _WIDE:
        start = at + 4
        stop = start + int(_unpack_u32(body, at)[0])
    elif code == BOOLEAN and body[at] <= 1:
        return at + 1 if at < end else -1
    else:
        return -1
    if stop > end:
        return -1
    holes.append(start)
    if code & 0x0F == 0:
        holes.append(stop)
        return stop
    holes.append(-stop)
    text = body[start:stop]
    if not text.isascii():
        if code in _SYMBOLS:
            return -1
        try:
            text.decode("utf-8")
        except UnicodeDecodeError:
            return -1
    return stop

"""Values from bytes: every encoding of part 1, with bounds, raising nothing but `DecodeError`.

    value     = constructor data
    0x43                            fixed:     uint 0
    0x52 0x07                       fixed:     uint 7
    0xa1 0x02 'h' 'i'               variable:  size, data
    0xc0 0x03 0x02 0x41 0x42        compound:  size, count, values      (size counts the count)
    0xe0 0x04 0x02 0x50 0x01 0x02   array:     size, count, one constructor, data ...
    0x00 0x53 0x24 0x45             described: 0x00, descriptor value, constructor, data

A size is checked against the bytes that are there before anything is read or built from it, and a count
against the size: each element of a list or map has at least its constructor. Whoever reads a compound must
end exactly where its size says.
"""

import uuid

from amqp_broker.frames.errors import DecodeError
from amqp_broker.frames.fixed_width import FIXED_READERS, U32
from amqp_broker.frames.limits import DEPTH_MAX, UUID_HASH_COLLISIONS_MAX, ZERO_WIDTH_ELEMENTS_MAX
from amqp_broker.frames.primitive_types import (
    ARRAY,
    BY_CODE,
    CATEGORY,
    COMPOUND,
    FIXED,
    VARIABLE,
    WIDTH,
    name_of_code,
)
from amqp_broker.frames.printing import shorten
from amqp_broker.frames.values import Array, CompoundKey, Described, Symbol, Ulong


def text_of(data: bytes, start: int, stop: int) -> str:
    """The string in these octets: UTF-8, strictly (1.6.20)."""
    try:
        return data[start:stop].decode("utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(
            f"expected UTF-8 for a string, but found {error.reason} at byte {start + error.start}"
        ) from None


def symbol_of(data: bytes, start: int, stop: int) -> str:
    """The symbol in these octets: ASCII, strictly (1.6.21)."""
    try:
        return data[start:stop].decode("ascii")
    except UnicodeDecodeError as error:
        octet = data[start + error.start]
        raise DecodeError(
            f"expected ASCII for a symbol, but found 0x{octet:02x} at byte {start + error.start}"
        ) from None


class Decoder:
    """Reads values from `data` at `pos`; `nodes_left` is how many values it may still build."""

    __slots__ = ("data", "nodes_left", "pos")

    def __init__(self, data: bytes, pos: int, nodes_left: int) -> None:
        self.data: bytes = data
        self.pos: int = pos
        self.nodes_left: int = nodes_left

    def value(self, end: int, depth: int) -> object:
        """The value at `pos`, which must end at `end` or before; `depth` is how deep it may still nest."""
        pos = self.pos
        if pos >= end:
            raise DecodeError(f"expected a value at byte {pos}, but its container ends there")
        self.spend(1)
        code = self.data[pos]
        self.pos = pos + 1
        if code == 0:
            return self._described(end, depth)
        return self._of_code(code, end, depth)

    def spend(self, nodes: int) -> None:
        """Takes `nodes` values off the budget."""
        self.nodes_left -= nodes
        if self.nodes_left < 0:
            raise DecodeError(f"too many values: the limit is reached at byte {self.pos}")

    def descriptor(self, end: int) -> Symbol | Ulong:
        """The descriptor at `pos`; a ulong or a symbol, every other type is reserved (1.3)."""
        pos = self.pos
        if pos >= end:
            raise DecodeError(f"expected a descriptor at byte {pos}, but its container ends there")
        code = self.data[pos]
        if code not in (0x53, 0xA3, 0x80, 0xB3, 0x44):
            raise DecodeError(
                f"expected a ulong or symbol as descriptor, but found {name_of_code(code)} at byte {pos}"
            )
        self.pos = pos + 1
        found = self._of_code(code, end, 0)
        assert isinstance(found, (Symbol, Ulong))
        return found

    def compound(self, code: int, end: int) -> tuple[int, int]:
        """Size and count after a list, map or array constructor: returns where it ends and how many values it
        has.
        """
        pos = self.pos
        width = WIDTH[code]
        if pos + 2 * width > end:
            raise DecodeError(f"{name_of_code(code)} at byte {pos - 1} is cut off within its size and count")
        if width == 1:
            size = self.data[pos]
            count = self.data[pos + 1]
        else:
            size = U32(self.data, pos)[0]
            count = U32(self.data, pos + 4)[0]
        stop = pos + width + size
        if size < width or stop > end:
            left = end - pos - width
            raise DecodeError(
                f"{name_of_code(code)} at byte {pos - 1} says {size} octets, but {left} are there"
            )
        self.pos = pos + 2 * width
        return stop, count

    def _described(self, end: int, depth: int) -> object:
        if depth <= 0:
            raise _too_deep(self.pos)
        descriptor = self.descriptor(end)
        return Described(descriptor, self.value(end, depth - 1))

    def _of_code(self, code: int, end: int, depth: int) -> object:
        """The value whose constructor was `code`; arrays call this for each element."""
        category = CATEGORY[code]
        pos = self.pos
        if category == FIXED:
            stop = pos + WIDTH[code]
            if stop > end:
                raise DecodeError(
                    f"{name_of_code(code)} at byte {pos - 1} is cut off: {end - pos} octets are left"
                )
            self.pos = stop
            return FIXED_READERS[code](self.data, pos)
        if category == VARIABLE:
            return self._variable(code, end)
        if category == COMPOUND:
            if depth <= 0:
                raise _too_deep(pos)
            if code & 0x0F == 0:
                return self._list(code, end, depth - 1)
            return self._map(code, end, depth - 1)
        if category == ARRAY:
            if depth <= 0:
                raise _too_deep(pos)
            return self._array(code, end, depth - 1)
        raise DecodeError(f"expected a constructor at byte {pos - 1}, but found {name_of_code(code)}")

    def _variable(self, code: int, end: int) -> object:
        start, stop = self.octets(code, end)
        subtype = code & 0x0F
        if subtype == 1:
            return text_of(self.data, start, stop)
        if subtype == 3:
            return Symbol(symbol_of(self.data, start, stop))
        return self.data[start:stop]

    def octets(self, code: int, end: int) -> tuple[int, int]:
        """Where the octets of a binary, string or symbol start and stop."""
        pos = self.pos
        start = pos + WIDTH[code]
        if start > end:
            raise DecodeError(f"{name_of_code(code)} at byte {pos - 1} is cut off within its size")
        size = self.data[pos] if code < 0xB0 else U32(self.data, pos)[0]
        stop = start + size
        if stop > end:
            raise DecodeError(
                f"{name_of_code(code)} at byte {pos - 1} says {size} octets, but {end - start} are there"
            )
        self.pos = stop
        return start, stop

    def _list(self, code: int, end: int, depth: int) -> list[object]:
        stop, count = self.compound(code, end)
        self.check_count(count, stop, "list")
        items: list[object] = []
        for _ in range(count):
            items.append(self.value(stop, depth))
        self.check_end(stop, "list")
        return items

    def _map(self, code: int, end: int, depth: int) -> dict[object, object]:
        stop, count = self.compound(code, end)
        self.check_map_count(count, stop)
        items: dict[object, object] = {}
        uuids = 0
        uuid_hashes: set[int] = set()
        for _ in range(count // 2):
            key = self.value(stop, depth)
            if isinstance(key, (list, dict)):
                key = CompoundKey(key)
            elif isinstance(key, uuid.UUID):
                # The hash of a UUID is no secret: a peer can choose many with the same.
                uuids += 1
                uuid_hashes.add(hash(key))
                if uuids - len(uuid_hashes) > UUID_HASH_COLLISIONS_MAX:
                    raise DecodeError(f"a map has uuid keys with colliding hashes before byte {self.pos}")
            if key in items:
                raise DecodeError(f"a map has the key {shorten(key)} twice, again before byte {self.pos}")
            items[key] = self.value(stop, depth)
        self.check_end(stop, "map")
        return items

    def check_count(self, count: int, stop: int, what: str) -> None:
        """Refuses a count that the octets left cannot hold."""
        if count > stop - self.pos:
            raise DecodeError(
                f"a {what} says {count} values, but {stop - self.pos} octets are left at byte {self.pos}"
            )

    def check_map_count(self, count: int, stop: int) -> None:
        """Refuses a count that is odd (1.6.23) or that the octets left cannot hold."""
        self.check_count(count, stop, "map")
        if count & 1:
            raise DecodeError(f"expected an even count in a map, but found {count} before byte {self.pos}")

    def end_of_compound(self, code: int, end: int) -> int:
        """Where a list or map ends, after its constructor: refuses a count that its octets cannot hold."""
        stop, count = self.compound(code, end)
        if code & 0x0F == 0:
            self.check_count(count, stop, "list")
        else:
            self.check_map_count(count, stop)
        return stop

    def check_end(self, stop: int, what: str) -> None:
        """Refuses a compound whose values end before its size does."""
        if self.pos != stop:
            raise DecodeError(
                f"a {what} ends at byte {self.pos} by its count, but at byte {stop} by its size"
            )

    def _array(self, code: int, end: int, depth: int) -> Array:
        stop, count = self.compound(code, end)
        descriptors: list[object] = []
        element = self._element_constructor(stop)
        while element == 0:
            if len(descriptors) >= depth:
                raise _too_deep(self.pos)
            self.spend(1)
            descriptors.append(self.descriptor(stop))
            element = self._element_constructor(stop)
        row = BY_CODE[element]
        if row is None:
            raise DecodeError(
                f"expected an element constructor, but found {name_of_code(element)} at byte {self.pos - 1}"
            )
        if row.category == FIXED and row.width == 0:
            if count > ZERO_WIDTH_ELEMENTS_MAX:
                raise DecodeError(
                    f"an array says {count} elements of no width, "
                    f"but at most {ZERO_WIDTH_ELEMENTS_MAX} are taken"
                )
        elif count * row.width > stop - self.pos:
            raise DecodeError(
                f"an array says {count} elements, but {stop - self.pos} octets are left at byte {self.pos}"
            )
        self.spend(count)
        inner = depth - len(descriptors)
        items: list[object] = []
        for _ in range(count):
            items.append(self._of_code(element, stop, inner))
        self.check_end(stop, "array")
        return Array(row.type_name, items, tuple(descriptors))

    def _element_constructor(self, stop: int) -> int:
        if self.pos >= stop:
            raise DecodeError(f"expected an element constructor at byte {self.pos}, but the array ends there")
        code = self.data[self.pos]
        self.pos += 1
        return code


def _too_deep(pos: int) -> DecodeError:
    return DecodeError(f"values nest deeper than DEPTH_MAX ({DEPTH_MAX}) at byte {pos}")


def decode_value(data: bytes, offset: int = 0, nodes_max: int = 0) -> tuple[object, int]:
    """The value at `offset`, and the offset after it.

    At most `nodes_max` values are built; 0 means as many as `data` has octets (and one array of zero-width
    elements more), which only a nest of zero-width arrays exceeds. Raises DecodeError, nothing else.
    """
    if nodes_max == 0:
        nodes_max = len(data) - offset + ZERO_WIDTH_ELEMENTS_MAX
    decoder = Decoder(data, offset, nodes_max)
    value = decoder.value(len(data), DEPTH_MAX)
    return value, decoder.pos


def skip_value(data: bytes, pos: int, end: int) -> int:
    """The offset after the value at `pos` by its announced size, without looking inside. Raises
    DecodeError.
    """
    depth = DEPTH_MAX
    while True:
        if pos >= end:
            raise DecodeError(f"expected a value at byte {pos}, but the data ends there")
        code = data[pos]
        if code != 0:
            return skip_data(data, code, pos + 1, end)
        depth -= 1
        if depth < 0:
            raise _too_deep(pos)
        decoder = Decoder(data, pos + 1, 1)
        decoder.descriptor(end)
        pos = decoder.pos


def skip_data(data: bytes, code: int, pos: int, end: int) -> int:
    """The offset after the data at `pos` of constructor `code`, by its announced size. Raises DecodeError."""
    category = CATEGORY[code]
    width = WIDTH[code]
    if category == FIXED:
        stop = pos + width
    elif category == 0:
        raise DecodeError(f"expected a constructor at byte {pos - 1}, but found {name_of_code(code)}")
    elif pos + width > end:
        raise DecodeError(f"{name_of_code(code)} at byte {pos - 1} is cut off within its size")
    else:
        stop = pos + width + (data[pos] if width == 1 else U32(data, pos)[0])
    if stop > end:
        raise DecodeError(
            f"{name_of_code(code)} at byte {pos - 1} needs {stop - pos} octets, but {end - pos} are left"
        )
    return stop

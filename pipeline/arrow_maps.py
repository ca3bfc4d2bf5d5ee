"""MAP columns from their entries: keys and values one after the other, in the buffers of Arrow.

Maps of one layout are written as rows of one size, each by one call of `struct`: where each value ends is
then a matter of counting.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from amqp_broker.frames.columns import ColumnGroup
from amqp_broker.frames.flat_maps import extend_from_map
from amqp_broker.pipeline.variants import EMPTY_METADATA, scalar_variants


class _Octets:
    """A column of strings of octets: what is in them, and where each ends."""

    def __init__(self) -> None:
        self._data: list[bytes] = []
        self._ends = array("i", [0])
        self._size = 0

    def __len__(self) -> int:
        return len(self._ends) - 1

    def add_rows(self, data: bytes, sizes: Sequence[int], count: int) -> None:
        """Add `count` rows, whose strings have these sizes."""
        width = sum(sizes)
        ends = array("i", bytes(4 * len(sizes) * count))
        for at, end in enumerate(itertools.accumulate(sizes)):
            first = self._size + end
            # A row without octets has all its ends at one place.
            places = range(first, first + width * count, width) if width else itertools.repeat(first, count)
            ends[at :: len(sizes)] = array("i", places)
        self._data.append(data)
        self._ends += ends
        self._size += width * count

    def add(self, strings: Sequence[bytes]) -> None:
        """These."""
        self._data.append(b"".join(strings))
        ends = itertools.accumulate(map(len, strings), initial=self._size)
        self._ends.extend(itertools.islice(ends, 1, None))
        self._size = self._ends[-1]

    def column(self, kind: pa.DataType) -> pa.Array:
        """All of them; `kind` is that of strings or binaries."""
        buffers = [None, pa.py_buffer(self._ends), pa.py_buffer(b"".join(self._data))]
        return pa.Array.from_buffers(kind, len(self), buffers)


class Entries:
    """The entries of maps of `kind`, map by map."""

    def __init__(self, kind: pa.MapType) -> None:
        self._kind = kind
        self._keys = _Octets()
        self._values = _Octets()
        self._metadata: list[bytes] | None = None
        """None as long as all values are scalars."""
        self._offsets = array("i", [0])

    def add_group(self, group: ColumnGroup) -> None:
        """Maps with the same keys."""
        count, width = len(group.rows), len(group.columns)
        end = self._offsets[-1]
        if not width:
            self._offsets.extend(itertools.repeat(end, count))
            return
        names = [name.encode() for name, _, _ in group.layout.values]
        self._keys.add_rows(b"".join(names) * count, list(map(len, names)), count)
        form = ["<"]
        arguments: list[Any] = []
        for packed in group.columns:
            form.append(f"{len(packed.head)}s{packed.form}")
            arguments.append(itertools.repeat(packed.head, count))
            if packed.form:
                arguments.append(packed.values)
        rows = itertools.starmap(struct.Struct("".join(form)).pack, zip(*arguments, strict=True))
        sizes = [len(packed.head) + packed.size for packed in group.columns]
        self._values.add_rows(b"".join(rows), sizes, count)
        self._offsets.extend(range(end + width, end + width * count + 1, width))

    def add_flat(self, parts: Sequence[Any]) -> bool:
        """Encoded maps of scalars only; False where one is not, and then nothing is added."""
        keys: list[str] = []
        values: list[Any] = []
        ends = []
        end = len(self._keys)
        for part in parts:
            if extend_from_map(part, keys, values) < 0:
                return False
            ends.append(end + len(keys))
        self._keys.add([key.encode() for key in keys])
        self._values.add(scalar_variants(values))
        self._offsets.extend(ends)
        return True

    def add_rows(self, rows: Sequence[Any]) -> None:
        """Maps as lists of (key, octets, metadata), or of (key, text) where values are JSON."""
        entries = list(itertools.chain.from_iterable(rows))
        if entries and len(entries[0]) == 3:
            self._metadata = [EMPTY_METADATA] * len(self._keys)
            self._metadata += [entry[2] for entry in entries]
            self._values.add([entry[1] for entry in entries])
        else:
            self._values.add([entry[1].encode() for entry in entries])
        self._keys.add([entry[0].encode() for entry in entries])
        self._offsets.extend(itertools.accumulate(map(len, rows), initial=self._offsets[-1]))
        # The first of them was there already.
        del self._offsets[len(self._offsets) - len(rows) - 1]

    def maps(self, absent: int) -> pa.Array:
        """All of them, and behind them as many nulls."""
        kind = self._kind
        there = len(self._offsets) - 1
        self._offsets.extend(itertools.repeat(self._offsets[-1], absent))
        keys = self._keys.column(kind.key_type)
        if pa.types.is_struct(kind.item_type):
            items = variants(kind.item_type, self._values.column(pa.binary()), self._metadata, None)
        else:
            items = self._values.column(kind.item_type)
        mask = pa.array([False] * there + [True] * absent, pa.bool_()) if absent else None
        offsets = pa.Array.from_buffers(pa.int32(), len(self._offsets), [None, pa.py_buffer(self._offsets)])
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)


def variants(kind: pa.StructType, values: pa.Array, metadata: list[bytes] | None, mask: Any) -> pa.Array:
    """VARIANT values from their octets; `metadata` None says that all are scalars."""
    if metadata is None:
        dictionaries = pa.repeat(pa.scalar(EMPTY_METADATA, pa.binary()), len(values))
    else:
        dictionaries = pa.array(metadata, pa.binary())
    return pa.StructArray.from_arrays([values, dictionaries], fields=list(kind), mask=mask)

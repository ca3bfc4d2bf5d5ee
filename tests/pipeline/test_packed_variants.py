"""Sections of one layout are read together, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.frames import Long, Properties, Symbol, Ulong, encode_section, encode_value
from amqp_broker.frames.columns import GROUP_MIN, LAYOUTS_MAX, Unlike, lay_out, properties_layout
from amqp_broker.pipeline.packed_variants import Packed, integers_packed, texts_packed, variants_layout
from amqp_broker.pipeline.variants import variant_of


def rows_of(parts: list[Any], learn: Any = variants_layout) -> tuple[list[list[int]], list[int]]:
    """The rows of each group, and of what is left."""
    groups, left = lay_out(parts, learn)
    return [list(group.rows) for group in groups], sorted(left)


def octets(packed: Packed, row: int) -> bytes:
    """One of the values, as it is written."""
    import struct

    return packed.head + (struct.pack(f"<{packed.form}", packed.values[row]) if packed.form else b"")


def test_one_layout_is_one_group() -> None:
    """Its columns are the values of each, as VARIANT."""
    maps = [
        {"id": f"order-{row}", "count": 1_000 + row, "share": row / 4, "paid": row % 2 == 0, "none": None}
        for row in range(9)
    ]
    groups, left = lay_out([encode_value(entries) for entries in maps], variants_layout)
    assert left == [] and len(groups) == 1 and list(groups[0].rows) == list(range(9))
    assert [name for name, _, _ in groups[0].layout.values] == list(maps[0])
    for row, entries in enumerate(maps):
        found = [octets(column, row) for column in groups[0].columns]
        assert found == [variant_of(value)[0] for value in entries.values()]


def test_sections_of_one_size_and_several_layouts_are_several_groups() -> None:
    """Other keys, texts that are longer here and shorter there: never read by a layout of another."""
    one = [encode_value({"ab": "c" * 3, "d": "e" * 4}) for _ in range(GROUP_MIN)]
    other = [encode_value({"ab": "c" * 4, "d": "e" * 3}) for _ in range(GROUP_MIN)]
    key = [encode_value({"xy": "c" * 3, "d": "e" * 4}) for _ in range(GROUP_MIN)]
    mixed = [part for three in zip(one, other, key, strict=True) for part in three]
    groups, left = rows_of(mixed)
    assert left == [] and sorted(groups) == [list(range(at, 3 * GROUP_MIN, 3)) for at in range(3)]


def test_numbers_that_take_several_sizes_are_several_groups() -> None:
    """As VARIANT they do, as AMQP they need not."""
    parts = [encode_value({"n": Long(value)}) for value in (128, 70_000) for _ in range(GROUP_MIN)]
    groups, left = rows_of(parts)
    assert left == [] and sorted(map(len, groups)) == [GROUP_MIN, GROUP_MIN]
    with pytest.raises(Unlike) as raised:
        integers_packed([5, -5, 1_000])
    assert len(set(raised.value.marks)) == 2


@pytest.mark.parametrize(
    "part",
    [
        encode_value({"a": [1]}),
        encode_value({Symbol("a"): {"b": 1}}),
        encode_value({1: "key of a number"}),
        encode_value({"n": Ulong(2**63)}),
        b"\xc1\x09\x04\xa1\x01a\x40\xa1\x01a\x40",  # a key that comes twice
        b"\xc1\x06\x02\xa1\x01a\xa1\x05",  # cut off
        b"\xc1\x07\x02\xa1\x01a\xa1\x01\xff",  # no text
        b"\xc1\x05\x02\xa1\x01\xff\x40",  # no text as a key
    ],
)
def test_what_is_rare_or_malformed_is_left(part: bytes) -> None:
    """And does not keep the others from being read."""
    good = [encode_value({"a": row}) for row in range(1, GROUP_MIN + 1)]
    groups, left = rows_of([part] * GROUP_MIN + good + [part])
    assert left == [*range(GROUP_MIN), 2 * GROUP_MIN]
    assert groups == [list(range(GROUP_MIN, 2 * GROUP_MIN))]


def test_few_are_left_and_many_layouts_are_too() -> None:
    """A layout that is not used often costs more than it brings; so does a search without an end."""
    assert rows_of([encode_value({"a": 1})] * (GROUP_MIN - 1)) == ([], list(range(GROUP_MIN - 1)))
    keys = [f"k{number:03}" for number in range(LAYOUTS_MAX + 5)]
    parts = [encode_value({key: 1}) for key in keys for _ in range(GROUP_MIN)]
    groups, left = rows_of(parts)
    assert len(groups) == LAYOUTS_MAX and len(left) == 5 * GROUP_MIN
    assert sorted([row for rows in groups for row in rows] + left) == list(range(len(parts)))


def test_absent_sections_are_in_no_group() -> None:
    """They are not left either."""
    part = encode_value({"a": 1})
    assert rows_of([None, *[part] * GROUP_MIN, None]) == ([list(range(1, GROUP_MIN + 1))], [])


def test_properties_have_their_fields() -> None:
    """Ids say of which type they are; half a character is none, even where the next begins with the rest."""
    parts = [
        encode_section("properties", Properties(message_id=Ulong(300 + row), subject="s", creation_time=row))
        for row in range(GROUP_MIN)
    ]
    groups, left = lay_out(parts, properties_layout)
    assert left == []
    assert [name for name, _, _ in groups[0].layout.values] == [
        "message_id:ulong", "subject", "creation_time",
    ]  # fmt: skip
    assert groups[0].columns[0] == [str(300 + row) for row in range(GROUP_MIN)]
    assert list(groups[0].columns[2]) == list(range(GROUP_MIN))
    with pytest.raises(UnicodeDecodeError):
        texts_packed([b"a\xc3", b"\xa9b"])

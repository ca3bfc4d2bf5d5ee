"""Offsets as Spark keeps them, and the ranges between them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.pipeline.errors import OffsetError
from amqp_broker.pipeline.offsets import (
    Offsets,
    Place,
    Range,
    admit,
    check_stores,
    positions_at,
    ranges_between,
    read_place,
    read_positions,
    split,
)

addresses = st.text("abcäü.$-", min_size=1, max_size=6)
positions = st.dictionaries(addresses, st.integers(0, 2**62), max_size=5)
BROKERS = ("amqp://a", "amqp://b", "amqp://c")


def one(where: dict[str, int]) -> Place:
    """The place at the one broker there is."""
    return Place((Offsets("log", where),))


@given(positions, st.randoms())
def test_one_place_is_always_the_same_text(where: dict[str, int], random: Any) -> None:
    """Whatever order the addresses came in, and after a round through JSON."""
    shuffled = list(where.items())
    random.shuffle(shuffled)
    text = json.dumps(one(where).to_dict())
    assert json.dumps(one(dict(shuffled)).to_dict()) == text
    again = read_place(json.loads(text))
    assert again == one(where) and json.dumps(again.to_dict()) == text


def test_the_text_is_the_documented_one() -> None:
    """Keys in order."""
    assert str(Place((Offsets("u", {"b": 1, "a": 2}),))) == '{"a":{"a":{"0":2},"b":{"0":1}},"log":"u","v":1}'


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "it was not written by this source"),
        ({"a": {}, "log": "u"}, "it was not written by this source"),
        ({"a": {}, "log": "u", "v": 2}, "expected an offset of version 1 in the checkpoint, found version 2"),
        ({"a": {}, "log": 5, "v": 1}, "expected the uuid of a store"),
        (
            {"a": {"q": {"0": -1}}, "log": "u", "v": 1},
            "expected a whole number from 0 on as offset of address 'q'",
        ),
        ({"a": {"q": {"0": "5"}}, "log": "u", "v": 1}, "found '5'"),
        ({"a": {"q": {"7": 5}}, "log": "u", "v": 1}, "expected the one partition 0 of address 'q'"),
        (
            {"a": {"q": {"2": 5}}, "log": ["u", "w"], "v": 1},
            "expected partitions 0 to 1 of address 'q', found 2",
        ),
        ({"a": {"q": {"x": 5}}, "log": ["u", "w"], "v": 1}, "expected partitions 0, 1, ... of address 'q'"),
        ({"a": {}, "log": ["u", 5], "v": 1}, "expected the uuid of a store"),
        ({"a": {}, "log": [], "v": 1}, "expected the uuid of a store"),
        ({"a": [], "log": "u", "v": 1}, "expected offsets by address"),
    ],
)
def test_what_is_no_offset_is_told(found: Any, said: str) -> None:
    """A checkpoint of another source, of another release, an edited one."""
    with pytest.raises(OffsetError, match=said):
        read_place(found)


def test_positions_of_an_option_have_words_for_the_ends() -> None:
    """Kafka's -1 and -2, with and without the partition."""
    found = read_positions({"a": -1, "b": {"0": -2}, "c": 7, "d": {"1": 4}})
    assert positions_at(found, 0) == {"a": -1, "b": -2, "c": 7}
    assert positions_at(found, 1) == {"a": -1, "c": 7, "d": 4}


def test_several_brokers_have_a_partition_each() -> None:
    """In the order of the option; an address need not be at all of them."""
    place = Place((Offsets("u", {"b": 1, "a": 2}), Offsets("w", {"a": 3, "c": 4})))
    assert str(place) == '{"a":{"a":{"0":2,"1":3},"b":{"0":1},"c":{"1":4}},"log":["u","w"],"v":1}'
    assert read_place(json.loads(str(place))) == place


def test_brokers_are_added_at_the_end_and_nowhere_else() -> None:
    """What is wrong is told with the broker that it is about."""
    place = Place((Offsets("u", {"a": 2}), Offsets("w", {"a": 3})))
    assert check_stores(place, ["u", "w"], BROKERS[:2]) == place
    assert check_stores(place, ["u", "w", "x"], BROKERS) == Place((*place.brokers, Offsets("x", {})))
    for logs, said in (
        (["w", "u"], "another order: expected .* begin with amqp://b; amqp://a, found amqp://a; amqp://b"),
        (["x", "u", "w"], "begin with amqp://b; amqp://c, found amqp://a; amqp://b; amqp://c"),
        (["u", "x"], "offsets of the store w, but the store of the broker at amqp://b is x: .* wiped"),
        (["u"], "at 2 brokers, and the option amqp.url names 1: the one with the store w is missing"),
        (["u", "u"], "amqp://a and amqp://b are the same broker .store u"),
    ):
        with pytest.raises(OffsetError, match=said):
            check_stores(place, logs, BROKERS[: len(logs)])


def test_another_store_is_told() -> None:
    """With both uuids, and what to do."""
    with pytest.raises(
        OffsetError, match="offsets of the store u, but the store of the broker at here is w.*wiped"
    ):
        check_stores(Place((Offsets("u", {}),)), ["w"], ["here"])


def test_ranges_are_what_lies_between() -> None:
    """Empty ones are left out; a new address begins where it was frozen; one that is not read stays."""
    start, end = Offsets("u", {"a": 1, "b": 5, "gone": 3}), Offsets("u", {"a": 4, "b": 5, "c": 9, "gone": 3})
    assert ranges_between(start, end, {"c": 7}) == [Range("a", 1, 4), Range("c", 7, 9)]


def test_going_backwards_is_an_error() -> None:
    """Spark would read nothing and go on."""
    with pytest.raises(OffsetError, match="'a' is to be read from offset 4 to 3"):
        ranges_between(Offsets("u", {"a": 4}), Offsets("u", {"a": 3}), {})


def test_a_range_prints_its_last_offset() -> None:
    """Not the one behind it."""
    assert str(Range("a", 5, 7)) == "offsets 5 to 6 of 'a'"


@given(
    st.lists(st.tuples(st.integers(0, 1_000), st.integers(1, 500)), min_size=1, max_size=5),
    st.integers(1, 40),
)
def test_splitting_loses_nothing(bounds: list[tuple[int, int]], wanted: int) -> None:
    """The parts cover the ranges in order, none is empty, and there are enough where there are messages."""
    ranges = [Range(f"q{number}", low, low + size) for number, (low, size) in enumerate(bounds)]
    parts = split(ranges, wanted)
    assert all(len(part) for part in parts)
    assert len(parts) >= min(wanted, sum(map(len, ranges)))
    for each in ranges:
        own = [part for part in parts if part.address == each.address]
        assert own[0].low == each.low and own[-1].high == each.high
        assert all(one.high == other.low for one, other in zip(own, own[1:], strict=False))


def test_nothing_is_split_without_need() -> None:
    """One task for each address."""
    assert split([Range("a", 0, 100), Range("b", 0, 5)], 1) == [Range("a", 0, 100), Range("b", 0, 5)]
    assert split([], 4) == []


@given(
    st.dictionaries(addresses, st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=6),
    st.integers(1, 10**6),
)
def test_admission_takes_no_more_than_the_limit_and_no_less_than_it_can(
    nodes: dict[str, tuple[int, int]], rows: int
) -> None:
    """Never beyond what is there, never backwards, and exactly the limit where there is more."""
    start = {address: low for address, (low, _) in nodes.items()}
    latest = {address: low + size for address, (low, size) in nodes.items()}
    end = admit(start, latest, rows)
    assert all(start[address] <= end[address] <= latest[address] for address in nodes)
    taken = sum(end[address] - start[address] for address in nodes)
    assert taken == min(rows, sum(size for _, size in nodes.values()))


def test_admission_starves_nobody() -> None:
    """A small queue beside a large one is served in the end."""
    start, latest = {"large": 0, "small": 0}, {"large": 10**6, "small": 3}
    for _ in range(4):
        start = admit(start, latest, 2)
        latest["large"] += 2
    assert start["small"] + start["large"] == 8


def test_a_task_has_at_most_so_many_messages() -> None:
    """Of each address; nothing is left out, and nothing comes twice."""
    ranges = [Range("a", 3, 24), Range("b", 0, 5)]
    parts = split(ranges, 1, 7)
    assert [(part.address, part.low, part.high) for part in parts] == [
        ("a", 3, 10), ("a", 10, 17), ("a", 17, 24), ("b", 0, 5),
    ]  # fmt: skip
    assert max(map(len, split(ranges, 6, 100))) == max(map(len, split(ranges, 6)))

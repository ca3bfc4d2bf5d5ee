"""Ranges of unsettled deliveries against a plain set."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.links.unsettled_ranges import UnsettledRanges
from tests.links.raw_peer import RawPeer
from tests.support.examples import examples

PEER = RawPeer().open()
PEER.begin()
LINKS = [PEER.attach_sender(0, "left"), PEER.attach_sender(1, "right")]
actions = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 3), st.integers(1, 5), st.integers(0, 1)),
        st.tuples(st.just("take"), st.integers(0, 60), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("find"), st.integers(0, 60), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("drop"), st.just(0), st.just(0), st.integers(0, 1)),
    ),
    max_size=40,
)


@examples(150)
@given(actions)
def test_ranges_behave_like_a_set(script: list[tuple[str, int, int, int]]) -> None:
    """Adding, taking, finding and dropping say the same as a dict from number to link."""
    ranges = UnsettledRanges()
    model: dict[int, Any] = {}
    following = 0
    for action, first, length, which in script:
        if action == "add":
            start = following + first
            following = start + length
            ranges.add(start, following - 1, LINKS[which])
            model.update(dict.fromkeys(range(start, following), LINKS[which]))
        elif action == "drop":
            ranges.drop_link(LINKS[which])
            model = {number: link for number, link in model.items() if link is not LINKS[which]}
        else:
            last = first + length
            found = ranges.take(first, last) if action == "take" else ranges.find(first, last)
            expected = [number for number in model if first <= number <= last]
            numbers = [number for low, high, _ in found for number in range(low, high + 1)]
            assert numbers == expected
            assert all(model[number] is link for low, high, link in found for number in range(low, high + 1))
            if action == "take":
                for number in expected:
                    del model[number]
        assert ranges.count == len(model)


def test_neighbours_of_one_link_are_one_range() -> None:
    """What arrives in order costs one entry, however it arrives."""
    ranges = UnsettledRanges()
    link = LINKS[0]
    ranges.add(5, 9, link)
    ranges.add(10, 10, link)
    assert ranges.find(0, 100) == [(5, 10, link)]

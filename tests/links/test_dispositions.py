"""Runs of delivery-ids."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.links.dispositions import runs_of


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30), st.integers(41, 2**33))
def test_runs_cover_the_list_in_its_order(offsets: list[int], following: int) -> None:
    """Any list of ids, also unordered, repeated or across 2^32, comes back number by number."""
    numbers = [following - 1 - offset for offset in offsets]
    runs = runs_of([number % 2**32 for number in numbers], following)
    assert [number for first, last in runs for number in range(first, last + 1)] == numbers


def test_consecutive_ids_are_one_run() -> None:
    """One disposition for any number of consecutive ids, also across 2^32."""
    assert runs_of(list(range(7, 500)), 1_000) == [(7, 499)]
    assert runs_of([2**32 - 2, 2**32 - 1, 0, 1], 2**32 + 2) == [(2**32 - 2, 2**32 + 1)]


def test_a_shuffled_list_is_not_taken_for_a_range() -> None:
    """Length and ends alone do not make a range."""
    assert runs_of([1, 5, 2, 4], 10) == [(1, 1), (5, 5), (2, 2), (4, 4)]

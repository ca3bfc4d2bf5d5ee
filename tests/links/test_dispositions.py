"""Runs of delivery-ids and delivery-states."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    Accepted,
    DecodeError,
    Modified,
    Rejected,
    Released,
    TransactionalState,
    encode_composite,
)
from amqp_broker.links.dispositions import decode_state, encode_state, runs_of


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


@pytest.mark.parametrize(
    "state",
    [
        Accepted(),
        Released(),
        Rejected(),
        Modified(delivery_failed=True),
        TransactionalState(txn_id=b"t", outcome=Accepted()),
    ],
)
def test_states_survive_the_wire(state: object) -> None:
    """The short cut for plain outcomes says what the general encoder and decoder say."""
    assert encode_state(state) == encode_composite(state)
    assert decode_state(encode_state(state)) == state


@pytest.mark.parametrize("code", [0x24, 0x26])
def test_every_spelling_of_a_plain_outcome_is_known(code: int) -> None:
    """list0, list8 and list32 without fields are the same outcome, and the same object, so that runs join."""
    kind = Accepted if code == 0x24 else Released
    spellings = [b"\x45", b"\xc0\x01\x00", b"\xd0\x00\x00\x00\x04\x00\x00\x00\x00"]
    states = [decode_state(b"\x00\x53" + bytes((code,)) + spelling) for spelling in spellings]
    assert all(state == kind() for state in states)
    assert decode_state(b"\x00\x53" + bytes((code,)) + b"\x45") is states[0]


def test_a_state_that_is_none_is_nothing() -> None:
    """No state, no bytes; bytes that are no state raise."""
    assert encode_state(None) == b""
    with pytest.raises(DecodeError):
        decode_state(b"\x00\x53\x24\xc0")

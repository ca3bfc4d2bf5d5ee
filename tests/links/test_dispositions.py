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


def test_a_state_that_came_lately_is_the_identical_object() -> None:
    """Dispositions one by one in one transaction join into one run by this."""
    data = encode_composite(TransactionalState(txn_id=b"t" * 32, outcome=Modified(delivery_failed=True)))
    assert decode_state(data) is decode_state(bytes(bytearray(data)))


def test_what_is_remembered_is_bounded() -> None:
    """Ever new states, or large ones, fill no memory and are still decoded."""
    from amqp_broker.links import dispositions

    for number in range(1_000):
        state = TransactionalState(txn_id=number.to_bytes(32, "big"), outcome=Accepted())
        assert decode_state(encode_composite(state)) == state
    assert len(dispositions._recent_states) <= 32
    large = encode_composite(TransactionalState(txn_id=b"t" * 200))
    assert decode_state(large) == decode_state(large) and large not in dispositions._recent_states


def test_what_is_broken_is_not_remembered() -> None:
    """It raises each time."""
    for _ in range(2):
        with pytest.raises(DecodeError):
            decode_state(b"\x00\x53\x34\xc0\x01\x00")

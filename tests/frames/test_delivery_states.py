"""Delivery-states to bytes and back: what the short cuts say is what the general codec says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    Accepted,
    Declared,
    DecodeError,
    Modified,
    Received,
    Rejected,
    Released,
    TransactionalState,
    decode_composite,
    decode_state,
    delivery_states,
    encode_composite,
    encode_state,
)

outcomes = st.sampled_from([Accepted(), Released(), Rejected(), Modified(delivery_failed=True)])
txn_ids = st.binary(max_size=40) | st.binary(min_size=199, max_size=300)


@given(
    outcomes
    | st.just(Received(section_number=1, section_offset=2))
    | st.builds(Declared, txn_id=txn_ids)
    | st.builds(TransactionalState, txn_id=txn_ids, outcome=st.none() | outcomes)
)
def test_states_survive_the_wire(state: object) -> None:
    """The general decoder reads what is written, and what is read is the state."""
    encoded = encode_state(state)
    assert encoded == encode_composite(state)
    assert decode_composite(encoded) == (state, len(encoded))
    assert decode_state(encoded) == state


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
    for number in range(1_000):
        state = TransactionalState(txn_id=number.to_bytes(32, "big"), outcome=Accepted())
        assert decode_state(encode_composite(state)) == state
    assert len(delivery_states._recent_states) <= 32
    large = encode_composite(TransactionalState(txn_id=b"t" * 200))
    assert decode_state(large) == decode_state(large) and large not in delivery_states._recent_states


def test_what_is_broken_is_not_remembered() -> None:
    """It raises each time."""
    for _ in range(2):
        with pytest.raises(DecodeError):
            decode_state(b"\x00\x53\x34\xc0\x01\x00")

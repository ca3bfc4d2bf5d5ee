"""The fast path of transactions against the general codec: the same values, the same bytes, or no answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    Accepted,
    AmqpValue,
    Declare,
    Declared,
    DecodeError,
    Discharge,
    Message,
    Modified,
    Rejected,
    TransactionalState,
    decode_composite,
    encode_composite,
    encode_message,
    encode_transactional,
    read_request,
    read_transactional_state,
)

txn_ids = st.binary(max_size=40)
states = st.one_of(
    st.builds(Declared, txn_id=txn_ids),
    st.builds(
        TransactionalState,
        txn_id=txn_ids,
        outcome=st.sampled_from([None, Accepted(), Rejected(), Modified(delivery_failed=True)]),
    ),
)
requests = st.one_of(
    st.just(Declare()), st.builds(Discharge, txn_id=txn_ids, fail=st.sampled_from([None, True, False]))
)


def general(payload: bytes) -> object:
    """What the general codec makes of a message: its amqp-value, or nothing."""
    try:
        (section,) = Message(payload).body_sections()
    except (DecodeError, ValueError):
        return None
    return section.value if isinstance(section, AmqpValue) else None


@given(states)
def test_a_state_is_encoded_as_the_general_codec_reads_it(state: TransactionalState | Declared) -> None:
    """Whatever the fast path writes means the state."""
    fast = encode_transactional(state)
    if fast:
        assert decode_composite(fast) == (state, len(fast))
    usual = isinstance(state, Declared) or state.outcome is None or isinstance(state.outcome, Accepted)
    assert bool(fast) == usual


@given(states, st.data())
def test_a_state_is_read_as_the_general_codec_reads_it(
    state: TransactionalState | Declared, data: st.DataObject
) -> None:
    """Also cut short, longer, or with a byte changed: the same value or none."""
    encoded = bytearray(encode_composite(state))
    if data.draw(st.booleans()):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    changed = bytes(encoded[: data.draw(st.integers(0, len(encoded)))]) + data.draw(st.binary(max_size=2))
    for each in (bytes(encoded), changed):
        fast = read_transactional_state(each)
        if fast is not None:
            assert decode_composite(each) == (fast, len(each))


@given(requests, st.data())
def test_a_request_is_read_as_the_general_codec_reads_it(
    request: Declare | Discharge, data: st.DataObject
) -> None:
    """Also when a byte of it is changed, or more follows."""
    encoded = bytearray(encode_message(body=AmqpValue(request)))
    assert read_request(bytes(encoded)) in (None, request)
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    for each in (bytes(encoded), bytes(encoded[:-1]), bytes(encoded) + b"\x42"):
        fast = read_request(each)
        if fast is not None:
            assert fast == general(each)


def test_the_usual_requests_take_the_fast_path() -> None:
    """What our own codec and the clients of conformance/clients write."""
    assert read_request(b"\x00\x53\x77\x00\x53\x31\x45") == Declare()
    assert read_request(b"\x00\x53\x77\x00\x53\x32\xc0\x07\x02\xa0\x03abc\x41") == Discharge(
        txn_id=b"abc", fail=True
    )
    assert read_request(encode_message(body=AmqpValue(Discharge(txn_id=b"a" * 16, fail=False)))) is not None

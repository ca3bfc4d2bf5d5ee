"""Prepared encoders against the general decoder."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    Accepted,
    Declared,
    Modified,
    Rejected,
    TransactionalState,
    Transfer,
    TransferEncoder,
    decode_composite,
    encode_composite,
    encode_transactional,
)
from amqp_broker.frames.fast_encoding import MAX_TRANSFER_HEAD_BYTES
from tests.frames.samples import decoded
from tests.strategies import integers

channels = integers(16)
handles = st.sampled_from([0, 1, 255, 256, 2**32 - 1])
formats = st.sampled_from([0, 1, 255, 256, 2**32 - 1])
numbers = integers(32)
txn_ids = st.binary(max_size=40)


@given(channels, handles, formats, st.booleans(), numbers, st.binary(max_size=50))
def test_a_transfer_is_what_was_meant(
    channel: int, handle: int, message_format: int, settled: bool, number: int, payload: bytes
) -> None:
    """Prefix, number, tag and suffix make the transfer; the size of the head is announced."""
    encoder = TransferEncoder(channel, handle, settled)
    encoder.set_format(message_format)
    size = encoder.head_bytes + len(payload)
    head = encoder.pack(size, encoder.prefix, number, 0xA004, number, encoder.suffix)
    assert len(head) == encoder.head_bytes < MAX_TRANSFER_HEAD_BYTES
    frame = decoded(head + payload)
    assert (frame.channel, frame.payload) == (channel, payload)
    assert frame.performative == Transfer(
        handle=handle, delivery_id=number, delivery_tag=number.to_bytes(4, "big"),
        message_format=message_format, settled=settled,
    )  # fmt: skip


@given(channels, handles, formats, st.booleans(), numbers)
def test_pieces_are_what_was_meant(
    channel: int, handle: int, message_format: int, settled: bool, number: int
) -> None:
    """First, next, last and abort of a delivery that is split; no head is larger than announced."""
    encoder = TransferEncoder(channel, handle, settled)
    encoder.set_format(message_format)
    first = encoder.first_of_many(number, 3)
    assert (
        max(len(first), len(encoder.continuation(True, 0)), len(encoder.abort())) <= MAX_TRANSFER_HEAD_BYTES
    )
    assert decoded(first + b"abc").performative == Transfer(
        handle=handle, delivery_id=number, delivery_tag=number.to_bytes(4, "big"),
        message_format=message_format, settled=settled, more=True,
    )  # fmt: skip
    assert decoded(encoder.continuation(True, 3) + b"abc").performative == Transfer(handle=handle, more=True)
    last = decoded(encoder.continuation(False, 3) + b"abc")
    assert last.performative == Transfer(handle=handle) and last.payload == b"abc" and last.channel == channel
    assert decoded(encoder.abort()).performative == Transfer(handle=handle, aborted=True)


@given(channels, handles, formats, st.booleans(), numbers, st.integers(1, 180))
def test_every_frame_carries_the_state(
    channel: int, handle: int, message_format: int, settled: bool, number: int, txn_id_bytes: int
) -> None:
    """4.4.1: all frames of a split delivery name their transaction, and so does the one that aborts it."""
    state = TransactionalState(txn_id=b"t" * txn_id_bytes)
    encoder = TransferEncoder(channel, handle, settled, encode_composite(state))
    encoder.set_format(message_format)
    whole = Transfer(
        handle=handle, delivery_id=number, delivery_tag=number.to_bytes(4, "big"),
        message_format=message_format, settled=settled, state=state,
    )  # fmt: skip
    head = encoder.pack(encoder.head_bytes + 3, encoder.prefix, number, 0xA004, number, encoder.suffix)
    assert len(head) == encoder.head_bytes <= encoder.largest_head_bytes
    assert decoded(head + b"abc").performative == whole
    whole.more = True
    pieces = [
        (encoder.first_of_many(number, 3), whole),
        (encoder.continuation(True, 3), Transfer(handle=handle, more=True, state=state)),
        (encoder.continuation(False, 3), Transfer(handle=handle, state=state)),
    ]
    for frame, transfer in pieces:
        assert len(frame) <= encoder.largest_head_bytes
        assert decoded(frame + b"abc").performative == transfer
    assert decoded(encoder.abort()).performative == Transfer(handle=handle, aborted=True, state=state)


@given(
    st.builds(Declared, txn_id=txn_ids)
    | st.builds(
        TransactionalState,
        txn_id=txn_ids,
        outcome=st.sampled_from([None, Accepted(), Rejected(), Modified(delivery_failed=True)]),
    )
)
def test_a_state_is_encoded_as_the_general_codec_reads_it(state: TransactionalState | Declared) -> None:
    """Whatever the fast path writes means the state."""
    fast = encode_transactional(state)
    if fast:
        assert decode_composite(fast) == (state, len(fast))
    usual = isinstance(state, Declared) or state.outcome is None or isinstance(state.outcome, Accepted)
    assert bool(fast) == usual

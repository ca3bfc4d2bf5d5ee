"""Prepared encoders against the general decoder."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    MAX_TRANSFER_HEAD_BYTES,
    Disposition,
    Error,
    Flow,
    Frame,
    FrameReader,
    Rejected,
    Symbol,
    TransactionalState,
    Transfer,
    TransferEncoder,
    encode_composite,
    encode_disposition,
    encode_flow,
    encode_uint,
    encode_value,
)
from tests.strategies import integers

channels = integers(16)
handles = st.sampled_from([0, 1, 255, 256, 2**32 - 1])
formats = st.sampled_from([0, 1, 255, 256, 2**32 - 1])
numbers = integers(32)


def decoded(data: bytes) -> Frame:
    """The one frame in `data`."""
    reader = FrameReader(2**31)
    reader.feed(data)
    frame = reader.next()
    assert isinstance(frame, Frame) and reader.buffered == 0
    return frame


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


@given(channels, st.booleans(), numbers, numbers, st.booleans(), st.sampled_from([0, 1, 200, 400]))
def test_a_disposition_is_what_was_meant(
    channel: int, role: bool, first: int, last: int, settled: bool, text: int
) -> None:
    """With and without a state, also with one that needs a list32."""
    state = Rejected(error=Error(condition="x", description="d" * text)) if text else None
    encoded = b"" if state is None else encode_composite(state)
    frame = decoded(encode_disposition(channel, role, first, last, settled, encoded))
    assert frame.channel == channel
    assert frame.performative == Disposition(role=role, first=first, last=last, settled=settled, state=state)


@given(channels, st.integers(-1, 2**32 - 1), numbers, numbers, numbers, st.booleans())
def test_a_flow_is_what_was_meant(
    channel: int, next_in: int, window: int, next_out: int, out_window: int, link: bool
) -> None:
    """For the session alone, and with the fields of a link behind."""
    fields = encode_uint(3) + encode_uint(300) + encode_uint(0) if link else b""
    frame = decoded(encode_flow(channel, next_in, window, next_out, out_window, fields, 3 if link else 0))
    expected = Flow(
        next_incoming_id=None if next_in < 0 else next_in, incoming_window=window, next_outgoing_id=next_out,
        outgoing_window=out_window,
    )  # fmt: skip
    if link:
        expected.handle, expected.delivery_count, expected.link_credit = 3, 300, 0
    assert frame.performative == expected and frame.channel == channel


@given(st.integers(0, 400))
def test_a_flow_with_properties_is_what_was_meant(octets: int) -> None:
    """The seventh field of a link, also when it makes the list a long one."""
    properties = encode_value({Symbol("txn-id"): b"t" * octets})
    fields = encode_uint(3) + encode_uint(300) + encode_uint(0) + b"\x40\x42\x42" + properties
    frame = decoded(encode_flow(0, 1, 2, 3, 4, fields, 7))
    assert frame.performative == Flow(
        next_incoming_id=1, incoming_window=2, next_outgoing_id=3, outgoing_window=4, handle=3,
        delivery_count=300, link_credit=0, properties={"txn-id": b"t" * octets},
    )  # fmt: skip

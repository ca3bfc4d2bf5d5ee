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
    Transfer,
    TransferEncoder,
    encode_composite,
    encode_disposition,
    encode_flow,
    encode_uint,
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

"""The load tool's prepared frames and its reading by shape, held against the general codec of `frames`."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_broker.bench.receiver import disposition
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.shapes import Shape
from amqp_broker.bench.templates import Block, columns
from amqp_broker.frames import (
    RECEIVER,
    Accepted,
    Disposition,
    Frame,
    FrameReader,
    Header,
    Message,
    Transfer,
    encode_composite,
    encode_frame,
)

RUN = 0x0123_4567_89AB


def frames_of(data: bytes, max_frame_size: int = 65_536) -> Iterator[Frame]:
    """What the general reader makes of these bytes."""
    reader = FrameReader(max_frame_size)
    reader.feed(data)
    while (frame := reader.next()) is not None:
        assert isinstance(frame, Frame)
        yield frame


def bench_settings(**changes: object) -> BenchSettings:
    """Settings of a run that is never started."""
    return BenchSettings(host="localhost", port=0, run=RUN, **changes)  # type: ignore[arg-type]


def stamped_transfer(
    delivery_id: int, number: int, time_ns: int, *, more: bool = False, prefix: bytes = b""
) -> bytes:
    """One transfer as a broker would send it, with a stamp in its data section."""
    body = b"".join(value.to_bytes(8, "big") for value in (RUN, number, time_ns)) + b"filling"
    transfer = Transfer(
        handle=0,
        delivery_id=delivery_id,
        delivery_tag=delivery_id.to_bytes(4, "big"),
        message_format=0,
        more=more,
    )
    return encode_frame(0, transfer, prefix + b"\x00\x53\x75\xa0" + bytes([len(body)]) + body)


@given(st.integers(0, 2**32 - 3_000), st.integers(1, 2_000), st.sampled_from([4, 8]))
@settings(max_examples=60)
def test_columns_are_the_bytes_of_consecutive_numbers(first: int, count: int, width: int) -> None:
    """Column k of the numbers is byte k of each of them."""
    numbers = b"".join(number.to_bytes(width, "big") for number in range(first, first + count))
    assert columns(first, count, width) == [numbers[k::width] for k in range(width)]


def test_a_block_holds_transfers_as_the_general_decoder_reads_them() -> None:
    """Delivery-ids, tags, numbers and times go up from message to message across a block's end."""
    block = Block(bench_settings(durable=True), 65_536)
    for number in (0, 1, 255, 256, 70_000):
        place = block.prepare(number)
        (frame,) = frames_of(bytes(block.stamped(place, place + 1, 99)))
        transfer = frame.performative
        assert isinstance(transfer, Transfer)
        assert (transfer.delivery_id, transfer.delivery_tag) == (number, number.to_bytes(4, "big"))
        message = Message(bytes(frame.payload))
        assert message.header.durable is True
        (section,) = message.body_sections()
        body = bytes(section.value)
        assert [int.from_bytes(body[at : at + 8], "big") for at in (0, 8, 16)] == [RUN, number, 99]
        assert len(body) == 100


def test_a_message_beyond_the_frame_size_takes_several_transfers() -> None:
    """Only the first transfer carries the delivery-id, all but the last say more (2.6.14)."""
    block = Block(bench_settings(body=2_000), 512)
    place = block.prepare(3)
    frames = list(frames_of(bytes(block.stamped(place, place + 1, 1)), 512))
    assert len(frames) == block.frames > 3
    transfers = [frame.performative for frame in frames]
    assert [transfer.delivery_id for transfer in transfers] == [3] + [None] * (len(frames) - 1)
    assert [bool(transfer.more) for transfer in transfers] == [True] * (len(frames) - 1) + [False]
    (section,) = Message(b"".join(bytes(frame.payload) for frame in frames)).body_sections()
    assert len(section.value) == 2_000


def test_a_prepared_disposition_is_what_the_general_encoder_means() -> None:
    """Role receiver, a range, settled, accepted."""
    wanted = Disposition(role=RECEIVER, first=7, last=2**32 - 1, settled=True, state=Accepted())
    (frame,) = frames_of(disposition(7, 2**32 - 1))
    (same,) = frames_of(encode_frame(0, wanted))
    assert frame.performative == same.performative


@given(st.sampled_from([0, 1, 200, 255, 256, 70_000]), st.integers(0, 2**40), st.integers(0, 2**60))
def test_a_shape_finds_what_the_frame_says(delivery_id: int, number: int, time_ns: int) -> None:
    """Delivery-id in each of its encodings, number and time, behind a header section."""
    data = stamped_transfer(delivery_id, number, time_ns, prefix=encode_composite(Header(durable=True)))
    shape, buffer = Shape(data), bytearray(data)
    assert shape.fits(buffer, 0)
    assert (shape.run, shape.more, shape.settled) == (RUN, False, False)
    assert shape.delivery_id(buffer, 0) == delivery_id
    assert (shape.number(buffer, 0), shape.time_ns(buffer, 0)) == (number, time_ns)


@given(st.lists(st.sampled_from(["same", "redelivered", "longer", "more"]), min_size=1, max_size=12))
def test_a_run_ends_where_a_frame_looks_different(kinds: list[str]) -> None:
    """The length of a run is the number of equal kinds at its start, whatever follows."""
    prefixes = {
        "same": encode_composite(Header(durable=True)),
        "redelivered": encode_composite(Header(durable=False)),
        "longer": encode_composite(Header(durable=True, priority=9)),
        "more": encode_composite(Header(durable=True)),
    }
    data = bytearray()
    for number, kind in enumerate(kinds):
        data += stamped_transfer(1_000 + number, number, 5, more=kind == "more", prefix=prefixes[kind])
    (first, *_) = frames_of(bytes(data))
    size = int.from_bytes(data[:4], "big")
    assert first.payload
    expected = next((at for at, kind in enumerate(kinds) if kind != kinds[0]), len(kinds))
    assert Shape(bytes(data[:size])).run_length(data, 0, len(data)) == expected


def test_other_frames_have_no_shape() -> None:
    """What is not a transfer goes to the general decoder."""
    refused = 0
    for data in (
        disposition(1, 2),
        b"\x00\x00\x00\x08\x02\x00\x00\x00",
        b"\x00\x00\x00\x0b\x02\x00\x00\x00\x00\x53\x14",
    ):
        try:
            Shape(data)
        except (ValueError, IndexError):
            refused += 1
    assert refused == 3

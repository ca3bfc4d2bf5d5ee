"""The load tool's stencils, for writing and for reading, held against the general codec of `frames`."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_broker.bench.sender import message_of, transfers
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.stencil import HEAD_BYTES, Stencil, columns
from amqp_broker.bench.wire import Incoming, Wire
from amqp_broker.frames import (
    EMPTY_FRAME,
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Disposition,
    Frame,
    FrameReader,
    Header,
    Message,
    Properties,
    Source,
    Transfer,
    encode_frame,
    encode_message,
)
from amqp_broker.testing.peer import PeerReceiver

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
    delivery_id: int,
    number: int,
    time_ns: int,
    *,
    more: bool = False,
    settled: bool | None = None,
    header: Header | None = None,
    properties: Properties | None = None,
    run: int = RUN,
) -> bytes:
    """One transfer as a broker would send it, with a stamp in its data section."""
    body = b"".join(value.to_bytes(8, "big") for value in (run, number, time_ns)) + b"filling"
    transfer = Transfer(
        handle=0,
        delivery_id=delivery_id,
        delivery_tag=delivery_id.to_bytes(4, "big"),
        message_format=0,
        settled=settled,
        more=more,
    )
    return encode_frame(0, transfer, encode_message(header=header, properties=properties, body=body))


def learned(data: bytes) -> Stencil | None:
    """What is learned of one frame."""
    return Stencil.learned(data, HEAD_BYTES, len(data), RUN.to_bytes(8, "big"))


@given(st.integers(0, 2**32 - 3_000), st.integers(1, 2_000), st.sampled_from([4, 8]))
@settings(max_examples=60)
def test_columns_are_the_bytes_of_consecutive_numbers(first: int, count: int, width: int) -> None:
    """Column k of the numbers is byte k of each of them."""
    numbers = b"".join(number.to_bytes(width, "big") for number in range(first, first + count))
    assert columns(first, count, width) == [numbers[k::width] for k in range(width)]


def test_a_block_holds_transfers_as_the_general_decoder_reads_them() -> None:
    """Delivery-ids, tags and numbers go up from message to message; all have the same time."""
    frames = transfers(message_of(bench_settings(durable=True)), 65_536, handle=0, settled=False)
    stencil = Stencil.marked(b"".join(frames))
    for first, count in ((0, 3), (255, 256), (70_000, 1), (2**32 - 300, 200)):
        filled = bytes(stencil.fill(count, now_ns=99, id=first, number=first))
        for place, frame in enumerate(frames_of(filled)):
            number, transfer = first + place, frame.performative
            assert isinstance(transfer, Transfer)
            assert (transfer.delivery_id, transfer.delivery_tag) == (number, number.to_bytes(4, "big"))
            message = Message(bytes(frame.payload))
            assert message.header.durable is True
            (section,) = message.body_sections()
            body = bytes(section.value)
            assert [int.from_bytes(body[at : at + 8], "big") for at in (0, 8, 16)] == [RUN, number, 99]
            assert len(body) == 100
        assert place == count - 1


def test_a_message_beyond_the_frame_size_takes_several_transfers() -> None:
    """Only the first transfer carries the delivery-id, all but the last say more (2.6.14)."""
    prepared = transfers(message_of(bench_settings(body=2_000)), 512, handle=0, settled=False)
    stencil = Stencil.marked(b"".join(prepared))
    frames = list(frames_of(bytes(stencil.fill(2, id=3, number=3)), 512))[len(prepared) :]
    assert len(frames) == len(prepared) > 3
    found = [frame.performative for frame in frames]
    assert [transfer.delivery_id for transfer in found] == [4] + [None] * (len(frames) - 1)
    assert [bool(transfer.more) for transfer in found] == [True] * (len(frames) - 1) + [False]
    (section,) = Message(b"".join(bytes(frame.payload) for frame in frames)).body_sections()
    assert len(section.value) == 2_000


@given(st.integers(256, 2**32 - 1), st.integers(0, 2**40), st.integers(0, 2**60), st.booleans())
def test_a_stencil_finds_what_the_frame_says(
    delivery_id: int, number: int, time_ns: int, settled: bool
) -> None:
    """Delivery-id, number and time, behind a header section and a half-id with the number."""
    half_id = RUN.to_bytes(8, "big") + number.to_bytes(8, "big")
    sections = {"header": Header(durable=True), "properties": Properties(message_id=half_id)}
    data = stamped_transfer(delivery_id, number, time_ns, settled=settled, **sections)  # type: ignore[arg-type]
    stencil = learned(data)
    assert stencil is not None and stencil.run_length(data, 0) == 1
    assert stencil.settled is settled
    found = [stencil.first(name, data, 0) for name in ("id", "number", "time")]
    assert found == [delivery_id, number, time_ns]


KINDS = {
    "same": {"header": Header(durable=True)},
    "redelivered": {"header": Header(durable=False)},
    "longer": {"header": Header(durable=True, priority=9)},
}


@given(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=12))
def test_a_run_ends_where_a_frame_looks_different(kinds: list[str]) -> None:
    """The length of a run is the number of equal kinds at its start, whatever follows."""
    frames = [stamped_transfer(1_000 + at, at, 5, **KINDS[kind]) for at, kind in enumerate(kinds)]  # type: ignore[arg-type]
    data = b"".join(frames)
    expected = next((at for at, kind in enumerate(kinds) if kind != kinds[0]), len(kinds))
    stencil = learned(frames[0])
    assert stencil is not None
    assert stencil.run_length(data, 0) == expected
    assert stencil.consecutive(data, 0, expected)
    jumped = frames[0] + stamped_transfer(1_002, 2, 5, **KINDS[kinds[0]])  # type: ignore[arg-type]
    assert stencil.run_length(jumped, 0) == 2 and not stencil.consecutive(jumped, 0, 2)


def test_other_frames_give_no_stencil() -> None:
    """They go to the general codec: what is no transfer, no whole delivery, or a message of another run."""
    answer = Disposition(role=RECEIVER, first=7, last=9, settled=True, state=Accepted())
    for data in (
        encode_frame(0, answer),
        EMPTY_FRAME,
        stamped_transfer(1_000, 1, 1, more=True),
        stamped_transfer(1_000, 1, 1, run=RUN + 1),
        stamped_transfer(3, 1, 1),
    ):
        assert learned(data) is None


Kind = tuple[int, int, int, bool, bool, bool]
SMALL_RUNS = st.tuples(
    st.integers(1, 4), st.integers(0, 2), st.integers(0, 1), st.booleans(), st.booleans(), st.booleans()
)


@given(
    st.lists(SMALL_RUNS, max_size=12),
    st.sampled_from([0, 250, 1_000, 2**32 - 6]),
    st.integers(1, 400),
)
def test_what_comes_is_read_the_same_in_runs_and_one_by_one(
    kinds: list[Kind], first: int, piece: int
) -> None:
    """Whatever the layouts, the gaps between numbers, and the pieces in which the octets come."""
    wire = Wire(None)  # type: ignore[arg-type]
    wire.put(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    wire.session = wire.sessions[0]
    wire.put(Attach(name="r", handle=0, role=RECEIVER))
    link = wire.session.links[0]
    assert isinstance(link, PeerReceiver)
    link.credit = 100
    answers: list[object] = [
        Begin(remote_channel=0, next_outgoing_id=0, incoming_window=1, outgoing_window=1),
        Attach(name="r", handle=0, role=SENDER, source=Source(), initial_delivery_count=0),
    ]
    wire.feed(b"".join(encode_frame(0, answer) for answer in answers))
    while wire.received() is not None:
        pass
    data, number = bytearray(), 0
    expected: list[tuple[int, int, bool, int | None]] = []
    for count, gap, foreign, settled, durable, split in kinds:
        number += gap
        for _ in range(count):
            identity = (first + len(expected)) % 2**32
            fields = {"settled": settled, "header": Header(durable=durable), "run": RUN + foreign}
            data += stamped_transfer(identity, number, 7 + gap, more=split, **fields)  # type: ignore[arg-type]
            if split:
                data += encode_frame(0, Transfer(handle=0), b"")
            expected.append((identity, -1 if foreign else number, settled, None if foreign else 7 + gap))
            number += 1
    incoming, found = Incoming(wire, link, RUN), []
    for at in range(0, len(data), piece):
        wire.feed(bytes(data[at : at + piece]))
        while wire.reader.advance():
            for run in incoming.runs():
                times = [each for each, count in run.times for _ in range(count)]
                assert len(times) == run.count
                for place, sent_ns in enumerate(times):
                    one = (run.delivery_id + place) % 2**32, run.number + place * (run.number >= 0)
                    found.append((*one, run.settled, None if run.number < 0 else sent_ns))
    assert found == expected
    assert (link.credit, incoming.overruns) == (100 - len(expected), 0)
    assert link.delivery_count == len(expected)

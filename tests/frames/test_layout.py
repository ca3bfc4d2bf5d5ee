"""Layouts of transfers: what runs read is what single transfers say, and what is packed is what was meant."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    Accepted,
    Declared,
    FrameReader,
    Released,
    TransactionalState,
    Transfer,
    encode_composite,
    encode_frame,
)
from amqp_broker.frames.generated import read_transfer
from amqp_broker.frames.hot_frames import Delivery, TransferEncoder, TransferHead, TransferLayout
from amqp_broker.frames.layout import MAX_MEMO_ENTRIES, Layout, _structs, run_by_index, run_by_struct
from tests.frames.samples import CLIENT_TRANSFERS, decoded
from tests.strategies import integers

RUNS = (run_by_struct, run_by_index)
SIZES = [0, 1, 255, 256, 2**32 - 1]


def test_constants_and_holes() -> None:
    """What is packed is unpacked, alone and many in a row; the memo of structs is bounded."""
    layout = Layout((b"ab", "B", b"c", "I"))
    data = layout.pack(b"ab", 1, b"c", 2)
    assert data == b"ab\x01c\x00\x00\x00\x02" and layout.size == 8
    assert layout.constants == (b"ab", b"c")
    assert layout.unpack(b"x" + data, 1) == (b"ab", 1, b"c", 2)
    assert list(layout.unpack_all(data * 2)) == [(b"ab", 1, b"c", 2)] * 2
    for number in range(MAX_MEMO_ENTRIES + 10):
        Layout((bytes(number),))
    assert len(_structs) <= MAX_MEMO_ENTRIES


def plain(number: int, tag: bytes = b"tag!", body: bytes = b"x" * 20, **fields: Any) -> bytes:
    """A transfer frame."""
    values: dict[str, Any] = {
        "handle": 0,
        "delivery_id": number,
        "delivery_tag": tag,
        "message_format": 0,
        "settled": False,
    } | fields
    return encode_frame(0, Transfer(**values), body)


def layout_of(frame: bytes) -> Any:
    """What is learnt from one frame."""
    head = read_transfer(frame, 8, len(frame))
    assert head is not None
    return TransferLayout.learn(frame, 0, head, 0, None)


def test_real_clients_reach_the_hot_path() -> None:
    """The layouts of rawload, proton, rhea, qpid-jms, go-amqp and fe2o3 are all known and learnt."""
    for body in CLIENT_TRANSFERS:
        frame = (8 + len(body) + 3).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body + b"xyz"
        assert layout_of(frame) is not None


@given(
    st.lists(st.binary(max_size=60), min_size=1, max_size=20),
    st.sampled_from([1, 200, 255, 256, 2**32 - 3]),
    st.sampled_from([b"", b"t", b"tag!", b"x" * 32]),
    st.booleans(),
    st.integers(0, 25),
)
def test_a_run_reads_what_single_transfers_say(
    bodies: list[bytes], start: int, tag: bytes, settled: bool, limit: int
) -> None:
    """Each delivery of a run carries its own id, tag and payload and the layout's other fields; it stops
    where the layout, the numbers or the limit stop.
    """
    for read in RUNS:
        check_run(read, bodies, start, tag, settled, limit)


def check_run(read: Any, bodies: list[bytes], start: int, tag: bytes, settled: bool, limit: int) -> None:
    """One way of reading a run."""
    frames = [
        plain((start + index) % 2**32, tag, body, settled=settled, batchable=True)
        for index, body in enumerate(bodies)
    ]
    layout = layout_of(frames[0])
    data = b"".join(frames)
    found: list[Delivery] = []
    at = read(data, 0, layout, start, limit, 10_000, found) if layout is not None else 0
    assert at == sum(len(frame) for frame in frames[: len(found)])
    assert len(found) <= limit
    for index, delivery in enumerate(found):
        assert delivery.delivery_id == (start + index) % 2**32
        assert (delivery.delivery_tag, delivery.payload) == (tag, bodies[index])
        assert (delivery.settled, delivery.batchable, delivery.message_format) == (settled, True, 0)
    if start in (1, 256):
        assert len(found) == min(limit, len(bodies))


@pytest.mark.parametrize(
    "second",
    [
        plain(6),
        plain(5, tag=b"longer"),
        plain(5, settled=True),
        plain(5, more=True),
        plain(5, handle=1),
        plain(5, message_format=1),
        plain(5, body=b"x" * 60),
        plain(5)[:-1],
        encode_frame(
            1, Transfer(handle=0, delivery_id=5, delivery_tag=b"tag!", message_format=0, settled=False), b"x"
        ),
        b"\x00\x00\x00\x10" + plain(5)[4:],
    ],
    ids=["number", "tag", "settled", "more", "handle", "format", "size", "cut", "channel", "short"],
)
def test_a_run_stops_at_what_is_different(second: bytes) -> None:
    """Another number, another layout, a frame that is too large, too short or not complete."""
    first = plain(4)
    data = first + second
    for read in RUNS:
        found: list[Delivery] = []
        assert read(data, 0, layout_of(first), 4, 10, len(first), found) == len(first)
        assert len(found) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"more": True},
        {"aborted": True},
        {"resume": True},
        {"delivery_id": 0},
        {"delivery_tag": None},
        {"delivery_id": None},
    ],
)
def test_what_is_no_pattern_is_not_learnt(fields: dict[str, Any]) -> None:
    """Parts of deliveries, and layouts that the next number does not fit into."""
    values: dict[str, Any] = {
        "handle": 0,
        "delivery_id": 9,
        "delivery_tag": b"t",
        "message_format": 0,
    } | fields
    assert layout_of(encode_frame(0, Transfer(**values))) is None


def learnt_with(state: TransactionalState, **fields: Any) -> TransferLayout:
    """What is learnt from a transfer with this state."""
    frame = plain(1, state=state, **fields)
    head = read_transfer(frame, 8, len(frame))
    assert isinstance(head, TransferHead)
    assert frame[head.state_at : head.state_end] == encode_composite(state)
    layout = TransferLayout.learn(frame, 0, head, 0, state)
    assert layout is not None
    return layout


@pytest.mark.parametrize("outcome", [None, Accepted()])
@pytest.mark.parametrize("batchable", [False, True])
def test_the_next_transaction_is_a_run_with_the_one_before(batchable: bool, outcome: Any) -> None:
    """Another txn-id of as many octets is read by the same layout; the deliveries of each share a state."""
    states = [TransactionalState(txn_id=txn_id, outcome=outcome) for txn_id in (b"one", b"two", b"one")]
    frames = [plain(1 + at, state=states[at // 2], batchable=batchable) for at in range(6)]
    for read in RUNS:
        layout = learnt_with(states[0], batchable=batchable)
        found: list[Delivery] = []
        assert read(b"".join(frames), 0, layout, 1, 10, 1_000, found) == len(b"".join(frames))
        assert [delivery.state for delivery in found] == [states[at // 2] for at in range(6)]
        assert all(found[at].state is found[at + 1].state for at in (0, 2, 4))
        assert [delivery.batchable for delivery in found] == [batchable] * 6


def test_another_state_ends_the_run() -> None:
    """Another outcome in as many octets, a txn-id of another length, another kind of state, or none."""
    first = TransactionalState(txn_id=b"txn", outcome=Accepted())
    for other in (
        TransactionalState(txn_id=b"txn", outcome=Released()),
        TransactionalState(txn_id=b"t", outcome=Accepted()),
        TransactionalState(txn_id=b"txn"),
        Declared(txn_id=b"txn-txn"),
        None,
    ):
        data = plain(1, state=first) + plain(2, state=other)
        for read in RUNS:
            found: list[Delivery] = []
            assert read(data, 0, learnt_with(first), 1, 10, 1_000, found) == len(plain(1, state=first))
            assert [delivery.state for delivery in found] == [first]


def test_where_no_txn_id_is_another_state_ends_the_run() -> None:
    """What stands in the place of a txn-id in another state is no hole."""
    frames = [plain(number, state=Declared(txn_id=b"txn%d" % number)) for number in (1, 2)]
    head = read_transfer(frames[0], 8, len(frames[0]))
    assert head is not None
    layout = TransferLayout.learn(frames[0], 0, head, 0, Declared(txn_id=b"txn1"))
    assert layout is not None
    for read in RUNS:
        found: list[Delivery] = []
        assert read(b"".join(frames), 0, layout, 1, 10, 1_000, found) == len(frames[0])


def test_a_delivery_prints_no_payload() -> None:
    """For logs: number and size."""
    delivery = Delivery(7, b"t", 0, True, b"secret", Accepted(), 0, False)
    assert repr(delivery) == "<Delivery 7 settled 6 bytes>"
    assert delivery.outcome == Accepted() and delivery.txn_id is None


def test_a_tag_of_another_size_in_as_many_octets() -> None:
    """The same sizes and the same last octets, but another tag and format: not the layout."""
    first = plain(300)
    second = plain(301, tag=b"", message_format=0x01020343)
    assert len(first) == len(second) and second[-22:] == first[-22:]
    for read in RUNS:
        found: list[Delivery] = []
        assert read(first + second, 0, layout_of(first), 300, 10, 1_000, found) == len(first)


@pytest.mark.parametrize(
    ("limit", "most", "taken"), [(9, 0, 3), (2, 0, 2), (9, 20, 3), (9, 19, 0), (0, 0, 0)]
)
def test_a_run_is_read_from_the_reader(limit: int, most: int, taken: int) -> None:
    """As many as are whole, wanted and small enough; the reader stands behind them."""
    frames = [plain(number) for number in (4, 5, 6, 7)]
    layout = layout_of(frames[0])
    reader = FrameReader(10_000)
    assert not layout.may_follow(reader)
    reader.feed(b"".join(frames)[:-1])
    assert layout.may_follow(reader)
    found: list[Delivery] = []
    assert layout.read_run(reader, 4, limit, most, found) == len(found) == taken
    assert reader.position == taken * len(frames[0])
    reader.max_frame_size = len(frames[0]) - 1
    assert layout.read_run(reader, 4 + taken, 9, 0, found) == 0


class Outgoing:
    """A message to be packed."""

    def __init__(self, body: bytes, message_format: int = 0, header_bytes: bytes = b"") -> None:
        self.header_bytes = header_bytes
        self.body = body
        self.message_format = message_format


@given(
    integers(16), st.sampled_from(SIZES), st.lists(st.sampled_from(SIZES), min_size=1, max_size=4),
    st.booleans(), integers(33), st.binary(max_size=50), st.sampled_from([0, 1, 180]),
)  # fmt: skip
def test_packed_runs_are_what_was_meant(
    channel: int, handle: int, formats: list[int], settled: bool, number: int, body: bytes, txn_id_bytes: int
) -> None:
    """Each message with its own format, number and tag, with a state and without; their octets are told."""
    state = TransactionalState(txn_id=b"t" * txn_id_bytes) if txn_id_bytes else None
    encoder = TransferEncoder(channel, handle, settled, encode_composite(state) if state else b"")
    messages = [Outgoing(body, each, b"h") for each in formats]
    chunks: list[bytes | memoryview] = []
    packed = encoder.pack_run(messages, 0, len(messages), number, 10_000, 10_000, chunks)
    assert packed == (len(messages), len(b"".join(chunks)))
    for at, message in enumerate(messages):
        head = bytes(chunks[2 * at])
        assert len(head) - 1 <= encoder.largest_head_bytes and chunks[2 * at + 1] is body
        frame = decoded(head + body)
        wire = (number + at) & 0xFFFFFFFF
        assert (frame.channel, frame.payload) == (channel, b"h" + body)
        assert frame.performative == Transfer(
            handle=handle, delivery_id=wire, delivery_tag=wire.to_bytes(4, "big"),
            message_format=message.message_format, settled=settled, state=state,
        )  # fmt: skip


def test_a_packed_run_stops() -> None:
    """At its limit, where its octets reach the room, and before a message that needs more than a frame."""
    messages = [Outgoing(b"x" * 10), Outgoing(b"x" * 10), Outgoing(b"x" * 60), Outgoing(b"")]
    encoder = TransferEncoder(0, 0, False)
    size = encoder.pack_run(messages, 0, 1, 0, 1_000, 1_000, [])[1]
    for start, limit, room, most, packed in (
        (0, 4, 1_000, 1_000, 4), (0, 2, 1_000, 1_000, 2), (1, 2, 1_000, 1_000, 2), (0, 4, size, 1_000, 1),
        (0, 4, size + 1, 1_000, 2), (0, 4, 0, 1_000, 0), (0, 4, 1_000, size, 2), (2, 2, 1_000, size, 0),
    ):  # fmt: skip
        chunks: list[bytes | memoryview] = []
        count, octets = encoder.pack_run(messages, start, limit, 7, room, most, chunks)
        assert (count, octets, len(chunks)) == (packed, len(b"".join(chunks)), 2 * packed)


@given(
    integers(16), st.sampled_from(SIZES), st.sampled_from(SIZES), st.booleans(), integers(32),
    st.sampled_from([0, 1, 180]),
)  # fmt: skip
def test_pieces_are_what_was_meant(
    channel: int, handle: int, message_format: int, settled: bool, number: int, txn_id_bytes: int
) -> None:
    """First, next, last and abort of a delivery that is split; no head is larger than announced. All of them
    name their transaction (4.4.1).
    """
    state = TransactionalState(txn_id=b"t" * txn_id_bytes) if txn_id_bytes else None
    encoder = TransferEncoder(channel, handle, settled, encode_composite(state) if state else b"")
    encoder.set_format(message_format)
    first = Transfer(
        handle=handle, delivery_id=number, delivery_tag=number.to_bytes(4, "big"),
        message_format=message_format, settled=settled, more=True, state=state,
    )  # fmt: skip
    for head, transfer in (
        (encoder.first_of_many(number, 3), first),
        (encoder.continuation(True, 3), Transfer(handle=handle, more=True, state=state)),
        (encoder.continuation(False, 3), Transfer(handle=handle, state=state)),
    ):
        assert len(head) <= encoder.largest_head_bytes
        frame = decoded(head + b"abc")
        assert (frame.performative, frame.payload, frame.channel) == (transfer, b"abc", channel)
    abort = encoder.abort()
    assert len(abort) <= encoder.largest_head_bytes
    assert decoded(abort).performative == Transfer(handle=handle, aborted=True, state=state)

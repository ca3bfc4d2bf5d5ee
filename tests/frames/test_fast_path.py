"""The hot readers against the general decoder: what they read is the same, and what they refuse is refused
safely.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_broker.frames import (
    AMQP_FRAME,
    Accepted,
    Attach,
    DecodeError,
    Delivery,
    Described,
    Disposition,
    Flow,
    Symbol,
    TransactionalState,
    Transfer,
    TransferHead,
    Ubyte,
    Uint,
    Ulong,
    decode_performative,
    encode_composite,
    encode_frame,
    learn_shape,
    read_disposition,
    read_flow,
    read_transfer,
)
from amqp_broker.frames.fast_path import run_by_index, run_by_struct
from tests.strategies import encoded, integers

uints = integers(32).map(Uint)
states = st.sampled_from(
    [
        None,
        Described(Ulong(0x24), []),
        Described(Ulong(0x34), [b"txn"]),
        Described(Symbol("amqp:released:list"), []),
    ]
)
maybe_uint = st.none() | uints
flags = st.none() | st.booleans()


@st.composite
def performatives(draw: st.DrawFn, code: int, *fields: st.SearchStrategy[Any], least: int) -> bytes:
    """One performative with these fields in any encoding, cut off after some of them."""
    values = [draw(field) for field in fields][: draw(st.integers(least, len(fields)))]
    # A described value; the descriptor as the smallulong of real clients, the list in any form.
    return b"\x00\x53" + bytes((code,)) + draw(encoded(values))


tags = st.none() | st.binary(max_size=33)
modes = st.none() | st.sampled_from([Ubyte(0), Ubyte(1), Ubyte(2)])
transfer_bytes = performatives(
    0x14, uints, maybe_uint, tags, maybe_uint, flags, flags, modes, states, flags, flags, flags, least=1
)
disposition_bytes = performatives(0x15, st.booleans(), uints, maybe_uint, flags, states, flags, least=2)
flow_bytes = performatives(
    0x13, maybe_uint, uints, uints, uints, maybe_uint, maybe_uint, maybe_uint, maybe_uint, flags, flags,
    st.none() | st.just({}), least=4,
)  # fmt: skip


def general(data: bytes, stop: int) -> Any:
    """What the general decoder says: (performative, where the payload starts), or None for an error."""
    try:
        return decode_performative(AMQP_FRAME, data, 0, stop)
    except DecodeError:
        return None


def compare_transfer(data: bytes, stop: int) -> bool:
    """Whether the reader knew it; if it did, it said the same."""
    head = read_transfer(data, 0, stop)
    if head is None:
        return False
    state = None if head.state_at < 0 else data[head.state_at : head.state_end]
    if state is not None:
        try:
            decode_performative(AMQP_FRAME, data, 0, stop)
        except DecodeError:
            return True  # the state is decoded by the general decoder in any case, and raises there
    found = general(data, stop)
    assert found is not None
    transfer, payload_at = found
    assert isinstance(transfer, Transfer)
    assert head.payload_at == payload_at
    assert head.handle == transfer.handle
    assert head.delivery_id == (-1 if transfer.delivery_id is None else transfer.delivery_id)
    assert head.delivery_tag == transfer.delivery_tag
    assert head.message_format == (-1 if transfer.message_format is None else transfer.message_format)
    assert head.settled == (-1 if transfer.settled is None else int(transfer.settled))
    assert head.rcv_settle_mode == (-1 if transfer.rcv_settle_mode is None else transfer.rcv_settle_mode)
    assert (head.more, head.resume, head.aborted, head.batchable) == (
        transfer.more, transfer.resume, transfer.aborted, transfer.batchable,
    )  # fmt: skip
    assert (state is None) == (transfer.state is None)
    return True


def compare_disposition(data: bytes, stop: int) -> bool:
    """As for transfers."""
    fields = read_disposition(data, 0, stop)
    if fields is None:
        return False
    role, first, last, settled, state_at, _ = fields
    found = general(data, stop)
    if found is None:
        assert state_at >= 0
        return True
    disposition, end = found
    assert isinstance(disposition, Disposition) and end == stop
    assert (role, first, settled) == (disposition.role, disposition.first, disposition.settled)
    assert last == (disposition.first if disposition.last is None else disposition.last)
    assert (state_at < 0) == (disposition.state is None)
    return True


def compare_flow(data: bytes, stop: int) -> bool:
    """As for transfers."""
    head = read_flow(data, 0, stop)
    if head is None:
        return False
    found = general(data, stop)
    assert found is not None
    flow, end = found
    assert isinstance(flow, Flow) and end == stop and flow.properties is None
    for name in (
        "next_incoming_id", "incoming_window", "next_outgoing_id", "outgoing_window", "handle",
        "delivery_count", "link_credit", "available",
    ):  # fmt: skip
        value = getattr(flow, name)
        assert getattr(head, name) == (-1 if value is None else value)
    assert (head.drain, head.echo) == (flow.drain, flow.echo)
    return True


COMPARE = {0x14: compare_transfer, 0x15: compare_disposition, 0x13: compare_flow}


@settings(max_examples=400)
@given(st.one_of(transfer_bytes, disposition_bytes, flow_bytes), st.sampled_from([b"", b"payload"]))
def test_what_is_read_is_what_the_general_decoder_says(performative: bytes, payload: bytes) -> None:
    """Every encoding of every field, with and without a payload behind."""
    data = performative + payload
    COMPARE[performative[2]](data, len(data))


@settings(max_examples=600)
@given(
    st.one_of(transfer_bytes, disposition_bytes, flow_bytes),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    st.integers(0, 12),
    st.binary(max_size=12),
)
def test_mutations_are_refused_or_read_the_same(
    performative: bytes, changes: list[tuple[int, int]], cut: int, behind: bytes
) -> None:
    """Changed or cut octets never raise, never reach behind the frame, never mean something else."""
    data = bytearray(performative)
    for at, value in changes:
        data[3 + at % (len(data) - 3)] = value
    del data[len(data) - min(cut, len(data) - 3) :]
    COMPARE[performative[2]](bytes(data) + behind, len(data))


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


def shape_of(frame: bytes) -> Any:
    """What is learnt from one frame."""
    head = read_transfer(frame, 8, len(frame))
    assert head is not None
    return learn_shape(frame, 0, head, 0, None)


def test_real_clients_reach_the_hot_path() -> None:
    """The layouts of rawload, proton, rhea, qpid-jms, go-amqp and fe2o3 are all known and learnt."""
    fields = b"\x43\x70\x00\x00\x01\x00\xa0\x04tag!\x43\x42"
    short = b"\x00\x53\x14\xc0" + bytes((len(fields) + 1, 5)) + fields
    long = b"\x00\x53\x14\xd0" + (len(fields) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x05" + fields
    texts = [b"\x06\x52\x03\x52\x09\xa0\x01\x31\x43\x41\x42"]
    texts.append(b"\x0b\x43\x52\x09\xa0\x02ab\x43\x42\x42\x40\x40\x42\x42\x41")
    others = [b"\x00\x53\x14\xc0" + bytes((len(text),)) + text for text in texts]
    for body in (short, long, *others):
        frame = (8 + len(body) + 3).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body + b"xyz"
        assert compare_transfer(body, len(body))
        assert shape_of(frame) is not None
    proton_disposition = b"\x00\x53\x15\xc0\x0b\x06\x41\x52\x05\x40\x41\x00\x53\x24\x45\x42"
    assert compare_disposition(proton_disposition, len(proton_disposition))


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
    """Each delivery of a run carries its own id, tag and payload and the shape's other fields; it stops where
    the shape, the numbers or the limit stop.
    """
    for read_run in (run_by_struct, run_by_index):
        check_run(read_run, bodies, start, tag, settled, limit)


def check_run(read_run: Any, bodies: list[bytes], start: int, tag: bytes, settled: bool, limit: int) -> None:
    """One way of reading a run."""
    frames = [
        plain((start + index) % 2**32, tag, body, settled=settled, batchable=True)
        for index, body in enumerate(bodies)
    ]
    shape = shape_of(frames[0])
    data = b"".join(frames)
    found: list[Delivery] = []
    at = read_run(data, 0, shape, start, limit, 10_000, found) if shape is not None else 0
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
    """Another number, another shape, a frame that is too large, too short or not complete."""
    first = plain(4)
    data = first + second
    for read_run in (run_by_struct, run_by_index):
        found: list[Delivery] = []
        assert read_run(data, 0, shape_of(first), 4, 10, len(first), found) == len(first)
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
    assert shape_of(encode_frame(0, Transfer(**values))) is None


def test_a_state_is_part_of_the_shape() -> None:
    """Transfers of one transaction are a run; another transaction ends it."""
    state = TransactionalState(txn_id=b"txn")
    frames = [plain(number, state=state) for number in (1, 2)] + [
        plain(3, state=TransactionalState(txn_id=b"nxt"))
    ]
    head = read_transfer(frames[0], 8, len(frames[0]))
    assert isinstance(head, TransferHead)
    assert frames[0][head.state_at : head.state_end] == encode_composite(state)
    shape = learn_shape(frames[0], 0, head, 0, state)
    assert shape is not None
    for read_run in (run_by_struct, run_by_index):
        found: list[Delivery] = []
        read_run(b"".join(frames), 0, shape, 1, 10, 1_000, found)
        assert [delivery.txn_id for delivery in found] == [b"txn", b"txn"]


def test_other_performatives_are_not_read() -> None:
    """The readers know their own descriptor only."""
    data = encode_composite(Attach(name="n", handle=0, role=True))
    assert read_transfer(data, 0, len(data)) is None
    assert read_disposition(data, 0, len(data)) is None
    assert read_flow(data, 0, len(data)) is None


def test_a_delivery_prints_no_payload() -> None:
    """For logs: number and size."""
    delivery = Delivery(7, b"t", 0, True, b"secret", Accepted(), 0, False)
    assert repr(delivery) == "<Delivery 7 settled 6 bytes>"
    assert delivery.outcome == Accepted() and delivery.txn_id is None


def test_a_tag_of_another_size_in_as_many_octets() -> None:
    """The same sizes and the same last octets, but another tag and format: not the shape."""
    first = plain(300)
    second = plain(301, tag=b"", message_format=0x01020343)
    assert len(first) == len(second) and second[-22:] == first[-22:]
    for read_run in (run_by_struct, run_by_index):
        found: list[Delivery] = []
        assert read_run(first + second, 0, shape_of(first), 300, 10, 1_000, found) == len(first)


@pytest.mark.parametrize(
    "frame",
    [
        plain(9),
        encode_frame(0, Disposition(role=True, first=1, last=2, settled=True)),
        encode_frame(0, Flow(incoming_window=1, next_outgoing_id=1, outgoing_window=1, handle=3)),
    ],
)
def test_fields_beyond_the_count_are_refused(frame: bytes) -> None:
    """A list that holds more than it counts is no list."""
    body = bytearray(frame[8:])
    body[5] -= 1
    data = bytes(body)
    assert not COMPARE[data[2]](data, len(data))
    assert general(data, len(data)) is None or data[2] == 0x14


def test_a_settle_mode_that_is_none_is_refused() -> None:
    """2.8.3: 0 and 1 are the modes; the general decoder says so."""
    body = b"\x00\x53\x14\xc0\x0c\x07\x43\x52\x09\xa0\x01t\x43\x42\x42\x50\x02"
    body = body[:4] + bytes((len(body) - 5,)) + body[5:]
    assert not compare_transfer(body, len(body))
    assert compare_transfer(body[:-1] + b"\x01", len(body))

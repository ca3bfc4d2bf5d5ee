"""Runs of transfers: what they read is what single transfers say, and they stop at what is different."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    Accepted,
    Delivery,
    TransactionalState,
    Transfer,
    TransferHead,
    encode_composite,
    encode_frame,
    learn_shape,
    read_transfer,
)
from amqp_broker.frames.fast_path import run_by_index, run_by_struct
from tests.frames.samples import CLIENT_TRANSFERS


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
    for body in CLIENT_TRANSFERS:
        frame = (8 + len(body) + 3).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body + b"xyz"
        assert shape_of(frame) is not None


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

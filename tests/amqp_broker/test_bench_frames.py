"""The load tool's prepared frames, for writing and reading, held against the general codec of `frames`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.bench.command_line import run
from amqp_broker.bench.report import WRONG, as_text, combine, is_clean
from amqp_broker.bench.sender import message_of, transfers
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.stencil import HEAD_BYTES, Stencil, columns
from amqp_broker.bench.supply import Pool
from amqp_broker.bench.wire import BenchError, Incoming, Run, Wire
from amqp_broker.bench.work_frames import WorkFrames, control_transfer
from amqp_broker.frames import (
    EMPTY_FRAME,
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Declare,
    Discharge,
    Disposition,
    Frame,
    FrameReader,
    Header,
    Message,
    Properties,
    Source,
    TransactionalState,
    Transfer,
    encode_frame,
    encode_message,
)
from amqp_broker.testing.peer import PeerReceiver
from tests.support.examples import examples

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
@examples(60)
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
            for came in incoming.runs():
                times = [each for each, count in came.times for _ in range(count)]
                assert len(times) == came.count
                for place, sent_ns in enumerate(times):
                    one = (came.delivery_id + place) % 2**32, came.number + place * (came.number >= 0)
                    found.append((*one, came.settled, None if came.number < 0 else sent_ns))
    assert found == expected
    assert (link.credit, incoming.overruns) == (100 - len(expected), 0)
    assert link.delivery_count == len(expected)


# Transactions: what it holds, what it looks for, what it says


TXN_IDS = st.binary(min_size=1, max_size=40)
CONTROL, POSTING = 0, 1


def work_frames(txn_id: bytes, **changes: object) -> WorkFrames:
    """Frames for ids as long as this one."""
    return WorkFrames(bench_settings(transactions=1, **changes), CONTROL, POSTING, len(txn_id), 65_536)


@given(TXN_IDS, st.integers(0, 2**32 - 300), st.integers(0, 2**40), st.integers(1, 256), st.booleans())
def test_postings_are_what_the_general_decoder_reads(
    txn_id: bytes, delivery_id: int, number: int, count: int, settled: bool
) -> None:
    """Each of a block has its own delivery-id, tag and number, and all name the transaction (4.4.1)."""
    frames = work_frames(txn_id, in_each=256, settled=settled, durable=True)
    found = list(frames_of(bytes(frames.postings(txn_id, delivery_id, number, count, 77))))
    assert len(found) == count
    for place, frame in enumerate(found):
        transfer = frame.performative
        assert isinstance(transfer, Transfer)
        assert (transfer.handle, transfer.delivery_id) == (POSTING, delivery_id + place)
        assert transfer.delivery_tag == (delivery_id + place).to_bytes(4, "big")
        assert transfer.state == TransactionalState(txn_id=txn_id)
        assert bool(transfer.settled) is settled
        message = Message(bytes(frame.payload))
        assert message.header.durable is True
        body = bytes(message.body_sections()[0].value)
        assert [int.from_bytes(body[at : at + 8], "big") for at in (0, 8, 16)] == [RUN, number + place, 77]


@given(TXN_IDS, TXN_IDS, st.integers(0, 2**32 - 1), st.booleans())
def test_a_discharge_names_its_transaction_and_how_it_ends(
    before: bytes, txn_id: bytes, delivery_id: int, fail: bool
) -> None:
    """Nothing of the transaction before is left in the frame (4.5.3)."""
    frames = work_frames(txn_id)
    if len(before) == len(txn_id):
        frames.discharge(before, 1, fail)
    (frame,) = frames_of(bytes(frames.discharge(txn_id, delivery_id, fail)))
    transfer = frame.performative
    assert isinstance(transfer, Transfer)
    assert (transfer.handle, transfer.delivery_id, bool(transfer.settled)) == (
        CONTROL,
        delivery_id,
        False,
    )
    (section,) = Message(bytes(frame.payload)).body_sections()
    assert section.value == Discharge(txn_id=txn_id, fail=fail)


def test_a_declare_is_what_the_general_decoder_reads() -> None:
    """An amqp-value section with a declare; the delivery-id is the tag, too (4.5.2)."""
    declare = Stencil.marked(control_transfer(CONTROL, Declare(), 65_536))
    for delivery_id in (0, 2**32 - 1, 5):
        (frame,) = frames_of(bytes(declare.fill(1, id=delivery_id)))
        transfer = frame.performative
        assert isinstance(transfer, Transfer)
        assert (transfer.handle, transfer.delivery_id, bool(transfer.settled)) == (0, delivery_id, False)
        assert transfer.delivery_tag == delivery_id.to_bytes(4, "big")
        (section,) = Message(bytes(frame.payload)).body_sections()
        assert section.value == Declare()


@given(TXN_IDS, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.booleans())
def test_a_retirement_accepts_a_range_in_its_transaction(
    txn_id: bytes, first: int, last: int, settled: bool
) -> None:
    """Settled or not, as the run asks (4.4.2)."""
    frames = work_frames(txn_id, retire_settled=settled)
    (frame,) = frames_of(bytes(frames.retirement(txn_id, first, last)))
    state = TransactionalState(txn_id=txn_id, outcome=Accepted())
    assert frame.performative == Disposition(
        role=RECEIVER, first=first, last=last, settled=settled, state=state
    )


def test_a_posting_that_needs_two_frames_is_refused() -> None:
    """The mode measures transactions, not fragments; the sentence says what to change."""
    with pytest.raises(BenchError, match="smaller --body"):
        WorkFrames(bench_settings(body=2_000), CONTROL, POSTING, 16, 512)


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans(), st.booleans()), max_size=40))
def test_a_pool_gives_each_delivery_once_and_the_oldest_first(steps: list[tuple[int, bool, bool]]) -> None:
    """Whatever comes, is taken and comes back, the deliveries stay the same and in their order."""
    pool, model, following = Pool(), list[tuple[int, int]](), 100
    for count, gap, back in steps:
        following += 5 * gap
        pool.add(Run(following, following * 2, count))
        model += [(following + place, following * 2 + place) for place in range(count)]
        following += count
        if len(model) >= count and back:
            taken = pool.take(count)
            assert each(taken) == model[:count]
            pool.give_back(taken)
            assert each(pool.take(1)) == [model.pop(0)]
        assert pool.held == len(model)
    assert each(pool.take(pool.held)) == model


def each(runs: list[Run]) -> list[tuple[int, int]]:
    """Delivery-id and number of each."""
    return [(run.delivery_id + i, run.number + i) for run in runs for i in range(run.count)]


def test_rolled_back_transactions_have_no_messages_of_their_own() -> None:
    """What they took has to be taken again, so a broker that loses it lets the run stall."""
    settings = bench_settings(transactions=100, in_each=10, live=4)
    assert settings.inputs == 1_000
    assert (
        bench_settings(transactions=100, in_each=10, live=4, roll_back_every=3).inputs == (100 - 33 + 4) * 10
    )
    assert bench_settings(transactions=3, in_each=10, live=16, roll_back_every=3).inputs == 30


IN_TRANSACTIONS = BenchSettings(host="localhost", port=1, transactions=2, in_each=5, retire=True)
LATENCIES = {"latencies": {"5": 2}, "largest": 5}


def results(**changes: Any) -> dict[str, dict[str, Any]]:
    """What the controller of a clean run of two transactions in one second tells."""
    queue = {"received": 10, "lost": 0, "duplicates": 0, "out_of_order": 0, "forbidden": 0, "foreign": 0}
    controller: dict[str, Any] = {
        "declare_us": LATENCIES, "discharge_us": LATENCIES, "transaction_us": LATENCIES, "committed": 2,
        "discharged": 2, "rolled_back": 0, "refused": 0, "first_refusal": "",
        "outcomes": {"accepted": 10, "rejected": 0},
        "late_outcomes": 0, "retired_twice": 0, "settled_retirements": 10, "first_at": 1.0, "last_at": 2.0,
        "cpu_s": 0.1, "stalled": False, "posted_there": queue, "input_there": {**queue, "received": 0},
    }  # fmt: skip
    for name, value in changes.items():
        if isinstance(value, dict):
            value = {**controller[name], **value}
        controller[name] = value
    return {"controller-0": controller}


def test_a_clean_run_of_transactions_is_clean() -> None:
    """Two transactions of five postings and five retirements in a second."""
    report = combine(IN_TRANSACTIONS, results())
    assert is_clean(IN_TRANSACTIONS, report)
    assert (report["transactions_per_second"], report["messages_per_second"]) == (2, 20)
    assert "2 transactions/s, 20 messages/s (10 posted, 10 retired)" in as_text(report)


@pytest.mark.parametrize(
    "wrong",
    [
        {"refused": 1, "committed": 1, "first_refusal": "amqp:transaction:rollback"},
        {"late_outcomes": 1},
        {"retired_twice": 1},
        {"settled_retirements": 9},
        {"stalled": True},
        {"outcomes": {"accepted": 9, "rejected": 1}},
        *({"posted_there": {name: 1}} for name in WRONG),
        *({"input_there": {name: 1}} for name in WRONG if name != "out_of_order"),
    ],
    ids=str,
)
def test_a_run_of_transactions_with_anything_wrong_is_not(wrong: dict[str, Any]) -> None:
    """One message lost, doubled or of a rolled back transaction, an outcome too late: exit status 1."""
    report = combine(IN_TRANSACTIONS, results(**wrong))
    assert not is_clean(IN_TRANSACTIONS, report)
    assert as_text(report)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--live", "two"], "--live must be numbers like 1,16, got 'two'"),
        (["--live", "4,0"], "--live must be at least 1, got 0"),
        (["--in-each", "0"], "--in-each must be at least 1, got 0"),
        (["--roll-back-every", "-1"], "--roll-back-every must be at least 0, got -1"),
        (["--retire", "--in-each", "20", "--credit", "10"], "never come with --credit 10"),
        (["--in-each", "1000000000"], "must stay below 2,147,483,648"),
    ],
)
def test_a_wrong_command_for_transactions_says_what_is_wrong(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2 and a sentence, before anything is connected."""
    assert run(["amqp://localhost:1", "--transactions", "10", *arguments]) == 2
    assert said in capsys.readouterr().err

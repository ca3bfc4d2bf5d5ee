"""The load tool's transactional mode: its prepared frames, what it holds, what it looks for, what it says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.bench.command_line import run
from amqp_broker.bench.report import WRONG, as_text, combine, is_clean
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.stencil import Stencil
from amqp_broker.bench.supply import Pool
from amqp_broker.bench.wire import BenchError, Run
from amqp_broker.bench.work_frames import WorkFrames, control_transfer
from amqp_broker.frames import (
    RECEIVER,
    Accepted,
    Declare,
    Discharge,
    Disposition,
    Message,
    TransactionalState,
    Transfer,
)
from tests.amqp_broker.test_bench_frames import RUN, bench_settings, frames_of

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


SETTINGS = BenchSettings(host="localhost", port=1, transactions=2, in_each=5, retire=True)
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
    report = combine(SETTINGS, results())
    assert is_clean(SETTINGS, report)
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
    report = combine(SETTINGS, results(**wrong))
    assert not is_clean(SETTINGS, report)
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

"""The decision table of sequenced streams: total, and exactly once in order for every arrival order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import pytest

from amqp_broker.coordinator.sequences import (
    REMEMBERED_IDS,
    SEQUENCE_TABLE,
    IdRelation,
    Numbering,
    PrevRelation,
    SequenceAnswer,
    StreamPosition,
    accept,
    expected_prev,
    judge,
)

Step = Callable[[StreamPosition, Numbering], tuple[SequenceAnswer, StreamPosition]]

STREAM_OF_FOUR = [Numbering(1, 1, 0), Numbering(1, 2, 1), Numbering(1, 3, 2), Numbering(1, 4, 3)]
THREE_THEN_TWO = [
    Numbering(1, 1, 0), Numbering(1, 2, 1), Numbering(1, 3, 2), Numbering(2, 1, 0), Numbering(2, 2, 1)
]  # fmt: skip


def orders(messages: list[Numbering]) -> Iterator[tuple[int, ...]]:
    """Every arrival order of one to six of the messages, with repetitions."""
    for length in range(1, 7):
        yield from product(range(len(messages)), repeat=length)


def accepted(messages: list[Numbering], order: tuple[int, ...], step: Step) -> list[Numbering]:
    """What is accepted when they arrive in this order."""
    position = StreamPosition()
    found = []
    for index in order:
        answer, position = step(position, messages[index])
        if answer is SequenceAnswer.ACCEPT:
            found.append(messages[index])
    return found


def in_order_and_once(found: list[Numbering]) -> bool:
    """Whether within each id the numbers are 1, 2, 3, ... and no id comes back."""
    last = (0, 0)
    for each in found:
        follows = each.seq_id == last[0] and each.seq_no == last[1] + 1
        begins = each.seq_id > last[0] and each.seq_no == 1
        if not (follows or begins):
            return False
        last = (each.seq_id, each.seq_no)
    return True


def literally(position: StreamPosition, numbering: Numbering) -> tuple[SequenceAnswer, StreamPosition]:
    """The source's last sentence without "if accepted": the position always moves."""
    answer, _ = accept(position, numbering)
    return answer, StreamPosition(numbering.seq_id, numbering.seq_no, position.former)


def test_the_table_is_total_and_the_impossible_rows_are_those_of_a_new_id() -> None:
    """Every combination of relations has its row; for a new id nothing was reached or expected."""
    assert set(SEQUENCE_TABLE) == set(product(IdRelation, (True, False), PrevRelation))
    impossible = {key for key, row in SEQUENCE_TABLE.items() if row is None}
    higher = IdRelation.HIGHER
    assert impossible == {
        (higher, True, PrevRelation.BELOW),
        *[(higher, False, each) for each in PrevRelation],
    }
    assert {row[0] for row in SEQUENCE_TABLE.values() if row} == {1, 2, 3, 4, 5, 6, 7, 8}


def test_no_small_state_reaches_an_impossible_row() -> None:
    """All positions and numberings up to 3 are judged."""
    formers: list[tuple[tuple[int, int], ...]] = [(), ((1, 2),)]
    for seq_id, seq_no, former in product(range(4), range(4), formers):
        position = StreamPosition(seq_id, seq_no if seq_id else 0, former if seq_id > 1 else ())
        for numbering in (Numbering(*each) for each in product(range(1, 4), range(1, 4), range(4))):
            if numbering.problem() is None:
                judge(position, numbering)


@pytest.mark.parametrize(
    ("position", "numbering", "row"),
    [
        (StreamPosition(5, 7), Numbering(5, 8, 7), (1, SequenceAnswer.ACCEPT)),
        (StreamPosition(5, 7), Numbering(5, 12, 3), (2, SequenceAnswer.ACCEPT)),
        (StreamPosition(5, 7), Numbering(5, 9, 8), (3, SequenceAnswer.GAP)),
        (StreamPosition(5, 7), Numbering(5, 6, 5), (4, SequenceAnswer.DUPLICATE)),
        (StreamPosition(5, 7), Numbering(5, 7, 6), (4, SequenceAnswer.DUPLICATE)),
        (StreamPosition(5, 7), Numbering(6, 4, 0), (6, SequenceAnswer.ACCEPT)),
        (StreamPosition(5, 7), Numbering(6, 4, 3), (7, SequenceAnswer.GAP)),
        (StreamPosition(5, 7, ((3, 4),)), Numbering(3, 4, 3), (8, SequenceAnswer.DUPLICATE)),
        (StreamPosition(5, 7, ((3, 4),)), Numbering(3, 5, 4), (8, SequenceAnswer.STALE)),
        (StreamPosition(5, 7), Numbering(3, 1, 0), (8, SequenceAnswer.STALE)),
        (StreamPosition(), Numbering(1, 1, 0), (6, SequenceAnswer.ACCEPT)),
        (StreamPosition(), Numbering(1, 2, 1), (7, SequenceAnswer.GAP)),
    ],
)
def test_the_rows_of_the_page(
    position: StreamPosition, numbering: Numbering, row: tuple[int, SequenceAnswer]
) -> None:
    """Each row by an example; the position moves on acceptance only."""
    assert judge(position, numbering) == row
    answer, after = accept(position, numbering)
    moved = (after.seq_id, after.seq_no) == (numbering.seq_id, numbering.seq_no)
    assert (after != position and moved) if answer is SequenceAnswer.ACCEPT else after is position


@pytest.mark.parametrize(
    "numbering",
    [Numbering(0, 1, 0), Numbering(1, 0, 0), Numbering(1, 3, 3), Numbering(1, 3, 4), Numbering(1, 2**32, 0),
     Numbering(2**64, 1, 0), Numbering(1, 3, -1)],
)  # fmt: skip
def test_row_0_a_malformed_numbering_says_what_was_expected(numbering: Numbering) -> None:
    """seq = 0, prev >= seq, id = 0, and what its type can't hold."""
    assert "expected" in (numbering.problem() or "")


def test_the_last_number_of_an_id_is_taken() -> None:
    """The largest uint is a number like others."""
    top = Numbering(1, 2**32 - 1, 5)
    assert top.problem() is None
    assert accept(StreamPosition(1, 5), top)[0] is SequenceAnswer.ACCEPT


def test_every_arrival_order_of_a_stream_of_four_is_accepted_in_order_and_once() -> None:
    """All 5,460 orders of up to six messages; the literal reading breaks 2,930 of them."""
    all_orders = list(orders(STREAM_OF_FOUR))
    assert len(all_orders) == 5_460
    assert all(in_order_and_once(accepted(STREAM_OF_FOUR, order, accept)) for order in all_orders)
    broken = [o for o in all_orders if not in_order_and_once(accepted(STREAM_OF_FOUR, o, literally))]
    assert len(broken) == 2_930


def test_every_arrival_order_of_a_stream_of_three_and_then_one_of_two() -> None:
    """All 19,530 orders of up to six messages."""
    all_orders = list(orders(THREE_THEN_TWO))
    assert len(all_orders) == 19_530
    assert all(in_order_and_once(accepted(THREE_THEN_TWO, order, accept)) for order in all_orders)
    assert any(not in_order_and_once(accepted(THREE_THEN_TWO, order, literally)) for order in all_orders)


def test_eight_former_ids_are_remembered_with_their_last_numbers() -> None:
    """Late duplicates of them are known; of older ones they are stale."""
    position = StreamPosition()
    for seq_id in range(1, REMEMBERED_IDS + 3):
        for seq_no in (1, 2):
            _, position = accept(position, Numbering(seq_id, seq_no, seq_no - 1))
    assert [former for former, _ in position.former] == list(range(2, REMEMBERED_IDS + 2))
    assert accept(position, Numbering(2, 2, 1))[0] is SequenceAnswer.DUPLICATE
    assert accept(position, Numbering(2, 3, 2))[0] is SequenceAnswer.STALE
    assert accept(position, Numbering(1, 1, 0))[0] is SequenceAnswer.STALE


def test_a_gap_says_what_was_expected() -> None:
    """The last accepted number of the id: the sender resends from there."""
    assert expected_prev(StreamPosition(5, 7), Numbering(5, 10, 9)) == 7
    assert expected_prev(StreamPosition(5, 7), Numbering(6, 10, 9)) == 0

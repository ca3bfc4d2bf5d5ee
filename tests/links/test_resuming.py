"""What becomes of deliveries when their link is resumed: the table, each row by the example of 3.4.6."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from amqp_broker.frames import Accepted, Modified, Received, Rejected, Released, TransactionalState
from amqp_broker.links import RESUMPTIONS, Known, Resumption, resumption_of


def at(section: int, offset: int) -> Received:
    """A place in a message."""
    return Received(section_number=section, section_offset=offset)


ACCEPTED = Accepted()
SENDER: dict[int, Any] = {
    1: None, 2: None, 3: None, 4: None, 5: at(0, 200), 6: at(1, 150), 7: at(0, 500), 8: at(3, 5),
    9: at(2, 0), 10: ACCEPTED, 11: ACCEPTED, 12: ACCEPTED, 13: ACCEPTED, 14: ACCEPTED,
}  # fmt: skip
RECEIVER: dict[int, Any] = {
    2: at(3, 0), 3: ACCEPTED, 4: None, 6: at(2, 0), 7: at(0, 100), 8: ACCEPTED, 9: None, 11: at(1, 2000),
    12: ACCEPTED, 13: Released(), 14: None,
}  # fmt: skip
DONE = {
    1: Resumption.ANEW, 2: Resumption.GO_ON, 3: Resumption.TELL, 4: Resumption.GO_ON, 5: Resumption.ANEW,
    6: Resumption.GO_ON, 7: Resumption.ABORT, 8: Resumption.TELL, 9: Resumption.ABORT,
    10: Resumption.NOTHING, 11: Resumption.ABORT, 12: Resumption.SETTLE, 13: Resumption.RESTATE,
    14: Resumption.ABORT,
}  # fmt: skip


@pytest.mark.parametrize("row", sorted(DONE))
def test_each_row_of_the_example(row: int) -> None:
    """2.6.13, 3.4.6: the fourteen delivery-tags of the standard's own unsettled maps."""
    ours = {b"%d" % tag: state for tag, state in SENDER.items()}
    theirs = {b"%d" % tag: state for tag, state in RECEIVER.items()}
    assert resumption_of(ours, theirs, b"%d" % row) is DONE[row]


@pytest.mark.parametrize("state", [None, at(0, 0), at(1, 0), ACCEPTED, Rejected()])
def test_what_only_the_target_has_is_forgotten(state: Any) -> None:
    """2.6.13: it "MUST be ignored by the Sender, and MUST be considered settled by the Receiver"."""
    assert resumption_of({}, {b"t": state}, b"t") is Resumption.FORGET


def test_the_table_has_each_pair() -> None:
    """No pair of what two peers may know is left out."""
    assert set(RESUMPTIONS) == set(itertools.product(Known, Known))


@pytest.mark.parametrize("state", [at(0, 0), TransactionalState(txn_id=b"gone", outcome=ACCEPTED)])
def test_states_that_say_nothing(state: Any) -> None:
    """received(0, 0) is as null (3.4.1), and so is an outcome in a transaction, which ended with its link."""
    assert resumption_of({b"t": None}, {b"t": state}, b"t") is Resumption.GO_ON
    assert resumption_of({b"t": ACCEPTED}, {b"t": state}, b"t") is Resumption.ABORT


def test_where_both_stand_at_the_same_place() -> None:
    """3.4.6, tag 6: the sender resumes "before or at the next position which the receiver is expecting"."""
    assert resumption_of({b"t": at(2, 7)}, {b"t": at(2, 7)}, b"t") is Resumption.GO_ON
    assert resumption_of({b"t": at(2, 8)}, {b"t": at(2, 7)}, b"t") is Resumption.ABORT


def test_outcomes_of_one_kind_that_differ() -> None:
    """3.4.6, tag 13: "it is the sender's view that is definitive"."""
    ours, theirs = Modified(delivery_failed=True), Modified(delivery_failed=False)
    assert resumption_of({b"t": ours}, {b"t": theirs}, b"t") is Resumption.RESTATE
    assert resumption_of({b"t": ours}, {b"t": Modified(delivery_failed=True)}, b"t") is Resumption.SETTLE

"""The rules of transactions.md as far as they are decided without a wire, one by one."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.coordinator import (
    ControlLinkTerminated,
    Ended,
    Transaction,
    TransactionRollback,
    TransactionState,
)
from amqp_broker.coordinator.errors import (
    NotSupported,
    TransactionLimitExceeded,
    TransactionTimeout,
    UnknownTransaction,
)
from amqp_broker.frames import Accepted, Declare, Discharge, Modified, Rejected, TransactionalState
from tests.coordinator.parts import (
    ACCEPTED,
    DECLARE,
    RELEASED,
    Delivery,
    Posting,
    commit_fails,
    discharge,
    dispose,
    done,
    table,
    txn,
)


def test_a_commit_hands_its_postings_back_in_order() -> None:
    """They are stored in the order in which they were enlisted, and available after the commit."""
    of = table()
    one = txn(of)
    postings = [Posting(name) for name in "abc"]
    for posting in postings:
        assert of.enlist(one, posting) is None
    found = of.discharge("control", Discharge(txn_id=one.txn_id))
    assert found is one and one.postings == postings
    ended = of.commit_done(one)
    assert ended.committed and ended.error is None and ended.postings == postings
    assert of.live() == [] and one.state is TransactionState.COMMITTED


@pytest.mark.parametrize("spoil", ["nothing", "settled post", "limit", "timeout", "forced"])
def test_rule_4_discharge_with_fail_always_succeeds(spoil: str) -> None:
    """Rule 4: whatever happened before, a discharge with fail=true is accepted (4.3)."""
    of = table(operations=1)
    one = txn(of)
    of.enlist(one, Posting())
    if spoil == "settled post":
        of.fail(one, "the queue is full")
    elif spoil == "limit":
        assert of.enlist(one, Posting()) is not None
    elif spoil == "timeout":
        of.expired(1000.0)
    elif spoil == "forced":
        of.force_rollback(one.txn_id, "an administrator's wish")
    ended = of.discharge("control", Discharge(txn_id=one.txn_id, fail=True), [one.txn_id])
    assert isinstance(ended, Ended) and ended.error is None and not ended.committed
    assert one.state is TransactionState.ROLLED_BACK


def test_rule_5_a_closed_control_link_rolls_back_what_it_declared() -> None:
    """Rule 5: at once, and only its own; a commit that the store is at goes on (4.1)."""
    of = table()
    mine, other, leaving = txn(of, 1), txn(of, 2, "another"), txn(of, 3)
    of.enlist(mine, Posting())
    of.discharge("control", Discharge(txn_id=leaving.txn_id))
    (ended,) = of.control_closed("control")
    assert ended.transaction is mine and len(ended.postings) == 1 and not ended.committed
    assert of.live() == [other, leaving]
    assert of.commit_done(leaving).committed
    with pytest.raises(UnknownTransaction):
        of.find(mine.txn_id)


def test_rule_5_a_lost_connection_rolls_back_everything() -> None:
    """Rule 5: the session or the connection takes the control links with it (4.1)."""
    of = table()
    all_of_them = [txn(of, n, f"control {n % 2}") for n in range(4)]
    delivery = Delivery()
    dispose(of, all_of_them[0], [delivery], settled=True)
    ended = of.connection_gone()
    assert {end.transaction for end in ended} == set(all_of_them)
    assert [work for end in ended for work in done(end)] == [("APPLY_DEFAULT", [delivery], None, False)]
    assert of.live() == [] and not of.holds_any and of.next_deadline() is None


def test_rule_6_a_partial_delivery_at_discharge_terminates_the_control_link() -> None:
    """Rule 6: more frames of a delivery in the transaction are to come (4.4.1)."""
    of = table()
    one, other = txn(of, 1), txn(of, 2)
    with pytest.raises(ControlLinkTerminated) as refused:
        of.discharge("control", Discharge(txn_id=one.txn_id), [one.txn_id])
    assert refused.value.control == "control" and refused.value.condition == "amqp:transaction:rollback"
    assert isinstance(of.discharge("control", Discharge(txn_id=other.txn_id), [one.txn_id]), Transaction)
    assert [ended.transaction for ended in of.control_closed("control")] == [one]


def test_rule_6_an_outcome_for_a_delivery_of_another_transaction() -> None:
    """Rule 6: the control link with which the outcome was wanted is terminated; the rest stays (4.4.2)."""
    of = table()
    first, second = txn(of, 1, "a"), txn(of, 2, "b")
    held, fresh = Delivery(), Delivery()
    dispose(of, first, [held])
    disposed = dispose(of, second, [held, fresh])
    (error,) = disposed.errors
    assert isinstance(error, ControlLinkTerminated) and error.control == "b"
    assert [done(ended) for ended in of.control_closed("b")] == [[("KEEP_HELD", [fresh], None, False)]]
    assert done(discharge(of, first)) == [("RETIRE", [held], ACCEPTED, True)]


def test_rule_6_a_foreign_outcome_that_settled_is_not_forgotten() -> None:
    """It cannot stay held for a controller that has settled it, so a rollback applies the default (4.4.4)."""
    of = table()
    first, second = txn(of, 1, "a"), txn(of, 2, "b")
    delivery = Delivery()
    dispose(of, first, [delivery])
    assert len(dispose(of, second, [delivery], settled=True).errors) == 1
    assert done(discharge(of, first, fail=True)) == [("APPLY_DEFAULT", [delivery], None, False)]


def test_the_store_is_at_what_a_discharge_holds() -> None:
    """From the discharge until its end: what is said of these deliveries meanwhile waits (4.4.2)."""
    for commits in (True, False):
        of = table()
        one, other = txn(of, 1), txn(of, 2)
        mine, theirs = Delivery(), Delivery()
        assert not of.commit_in_progress([mine])
        dispose(of, one, [mine])
        dispose(of, other, [theirs])
        assert not of.commit_in_progress([mine, theirs])
        of.discharge("control", Discharge(txn_id=one.txn_id))
        assert of.commit_in_progress([theirs, mine]) and not of.commit_in_progress([theirs])
        if commits:
            of.commit_done(one)
        else:
            of.commit_failed(one, "full")
        assert not of.commit_in_progress([mine])


def test_work_that_is_lost_leaves_only_the_rollback() -> None:
    """The first loss is told; for an unknown transaction, or after its discharge, nothing is."""
    of = table()
    one, other = txn(of, 1), txn(of, 2)
    of.enlist(one, Posting())
    of.lose(one.txn_id, "message 1 can't be done")
    of.lose(one.txn_id, "message 2 can't be done")
    for txn_id in (b"never declared", None, 7):
        of.lose(txn_id, "nobody's")
    ended = discharge(of, one)
    assert isinstance(ended.error, TransactionRollback)
    assert ended.error.description == "message 1 can't be done"
    of.discharge("control", Discharge(txn_id=other.txn_id))
    of.lose(other.txn_id, "too late")
    assert of.commit_done(other).committed


def test_what_a_transaction_has_given_already_is_counted() -> None:
    """Equal outcomes only, and of that transaction."""
    of = table()
    one, other = txn(of, 1), txn(of, 2)
    items = [Delivery() for _ in range(4)]
    dispose(of, one, items[:2])
    dispose(of, one, items[2:3], RELEASED)
    dispose(of, other, items[3:])
    assert of.count_given(one.txn_id, Accepted(), lambda item: item is not items[0]) == 1
    assert of.count_given(one.txn_id, None, lambda item: True) == 0
    assert of.count_given(b"never declared", Accepted(), lambda item: True) == 0


def test_an_outcome_is_free_after_the_discharge_of_the_other_transaction() -> None:
    """Only a *non discharged* other transaction stands in the way (4.4.2)."""
    of = table()
    first, second = txn(of, 1), txn(of, 2)
    delivery = Delivery()
    dispose(of, first, [delivery])
    discharge(of, first, fail=True)
    assert dispose(of, second, [delivery]).errors == []
    assert done(discharge(of, second)) == [("RETIRE", [delivery], ACCEPTED, True)]


def test_a_plain_outcome_for_what_a_live_transaction_holds() -> None:
    """An outcome before the discharge MUST be associated with the transaction (4.4.4.3)."""
    of = table()
    one = txn(of)
    held, free = Delivery(), Delivery()
    of.acquired(one, "consumer", [held], False)
    disposed = of.dispose_plainly([held, free], ACCEPTED, True)
    assert disposed.free == [free]
    assert [error.control for error in disposed.errors if isinstance(error, ControlLinkTerminated)] == [
        "control"
    ]
    (ended,) = of.control_closed("control")
    assert done(ended) == [("RELEASE", [held], None, False)], "the controller settled it"


def test_rule_8_a_settled_post_that_cannot_be_done() -> None:
    """Rule 8: the discharge is answered amqp:transaction:rollback, and all is rolled back (4.4.4.1)."""
    of = table()
    one = txn(of)
    of.enlist(one, Posting())
    of.fail(one, "queue q is full")
    of.fail(one, "a later reason")
    refused = of.enlist(one, Posting())
    assert isinstance(refused, TransactionRollback)
    ended = discharge(of, one)
    assert not ended.committed and len(ended.postings) == 1
    assert isinstance(ended.error, TransactionRollback) and "queue q is full" in ended.error.description


def test_rule_9_retirements() -> None:
    """Rule 9: after a rollback unsettled ones stay acquired, settled ones get the default (4.4.4.2)."""
    of = table()
    one = txn(of)
    unsettled, settled = Delivery(), Delivery()
    dispose(of, one, [unsettled])
    dispose(of, one, [settled], settled=True)
    assert done(commit_fails(of, one)) == [
        ("KEEP_HELD", [unsettled], None, False),
        ("APPLY_DEFAULT", [settled], None, False),
    ]


def test_rule_10_acquisitions() -> None:
    """Rule 10: a rollback undoes acquisition and outcome, whoever settled (4.4.4.3)."""
    of = table()
    one = txn(of)
    plain, accepted, settled, presettled = Delivery(), Delivery(), Delivery(), Delivery().message
    of.acquired(one, "consumer", [plain, accepted, settled], False)
    of.acquired(one, "consumer", [presettled], True)
    dispose(of, one, [accepted])
    dispose(of, one, [settled], settled=True)
    assert done(discharge(of, one, fail=True)) == [
        ("RELEASE", [plain, accepted], None, True),
        ("RELEASE", [settled, presettled], None, False),
    ]


def test_acquisitions_at_commit() -> None:
    """Given outcomes apply, without one it stays held, and what we sent settled is gone (4.4.3, 4.4.4.3)."""
    of = table()
    one = txn(of)
    plain, released, rejected, presettled = Delivery(), Delivery(), Delivery(), Delivery().message
    no = Rejected()
    of.acquired(one, "consumer", [plain, released, rejected], False)
    of.acquired(one, "consumer", [presettled], True)
    dispose(of, one, [released], RELEASED)
    dispose(of, one, [rejected], no, settled=True)
    assert done(discharge(of, one)) == [
        ("KEEP_HELD", [plain], None, False),
        ("RETURN", [released], RELEASED, True),
        ("RETIRE", [rejected], no, False),
        ("RETIRE", [presettled], ACCEPTED, False),
    ]
    assert of.dispose_plainly([plain], ACCEPTED, False).free == [plain]


def test_rule_12_the_txn_id_of_a_link_endpoint_is_cleared_at_discharge() -> None:
    """Rule 12: by the discharge itself, for all its links and no others (4.4.3)."""
    of = table()
    one, other = txn(of, 1), txn(of, 2)
    of.flow("x", one.txn_id)
    of.flow("y", one.txn_id)
    of.flow("z", other.txn_id)
    assert of.acquiring("x") is one
    ended = discharge(of, one)
    assert ended.consumers == ["x", "y"]
    assert of.acquiring("x") is None and of.acquiring("z") is other
    of.flow("z", None)
    assert of.acquiring("z") is None


def test_rule_12_a_txn_id_that_ended_without_discharge_is_not_forgotten() -> None:
    """What would be sent after a timeout must not look transactional, nor be sent outside of it (4.4.3)."""
    of = table()
    one, two = txn(of, 1), txn(of, 2, "other")
    of.flow("x", one.txn_id)
    of.flow("y", two.txn_id)
    of.control_closed("other")
    of.expired(120.0)
    with pytest.raises(TransactionTimeout):
        of.acquiring("x")
    with pytest.raises(TransactionRollback):
        of.acquiring("y")
    assert of.discharge("control", Discharge(txn_id=one.txn_id, fail=True)).error is None  # type: ignore[union-attr]
    assert of.acquiring("x") is None
    assert of.consumer_gone("y", [], left=True) == [] and of.acquiring("y") is None


def test_rule_13_global_id() -> None:
    """Rule 13: not allowed without distributed transactions (4.5.2)."""
    with pytest.raises(NotSupported):
        table().declare("control", Declare(global_id=b"g"), b"i" * 16, 0.0)


@pytest.mark.parametrize("txn_id", [b"never", b"", "text", ["unhashable"], None])
def test_an_unknown_id(txn_id: Any) -> None:
    """Whatever a peer names that is no live transaction is amqp:transaction:unknown-id (4.5.8)."""
    of = table()
    txn(of)
    with pytest.raises(UnknownTransaction) as refused:
        of.find(txn_id)
    assert refused.value.condition == "amqp:transaction:unknown-id"


def test_an_unknown_id_settles_nothing_but_loses_nothing() -> None:
    """What the controller settled under an unknown id gets the default outcome, the rest stays as it is."""
    of = table()
    gone = TransactionalState(txn_id=b"gone", outcome=ACCEPTED)
    first, second = Delivery(), Delivery()
    unsettled = of.dispose("consumer", [first], gone, False, RELEASED)
    assert unsettled.works == [] and isinstance(unsettled.errors[0], UnknownTransaction)
    settled = of.dispose("consumer", [second], gone, True, RELEASED)
    assert [(work.effect.name, work.items) for work in settled.works] == [("APPLY_DEFAULT", [second])]
    assert not of.holds_any


def test_a_discharge_belongs_to_the_control_link_that_declared() -> None:
    """Another control link, or a second discharge, is answered unknown-id (4.3)."""
    of = table()
    one = txn(of)
    request = Discharge(txn_id=one.txn_id)
    for control, fail in (("other", False), ("other", True)):
        with pytest.raises(UnknownTransaction):
            of.discharge(control, Discharge(txn_id=one.txn_id, fail=fail))
    assert of.find(one.txn_id) is one
    of.discharge("control", request)
    with pytest.raises(UnknownTransaction):
        of.discharge("control", request)
    with pytest.raises(UnknownTransaction):
        of.find(one.txn_id)
    of.commit_done(one)
    with pytest.raises(UnknownTransaction):
        of.discharge("control", request)


def test_a_timeout_rolls_back_at_once_and_is_told_at_the_next_use() -> None:
    """After the deadline the work is free and every use answers timeout, until its discharge (4.5.8)."""
    of = table(timeout_s=10.0)
    early, late = txn(of, 1, now=0.0), txn(of, 2, now=5.0)
    held = Delivery()
    of.acquired(early, "consumer", [held], False)
    assert of.next_deadline() == 10.0 and of.expired(9.9) == []
    (ended,) = of.expired(10.0)
    assert done(ended) == [("RELEASE", [held], None, True)] and of.next_deadline() == 15.0
    with pytest.raises(TransactionTimeout):
        of.find(early.txn_id)
    with pytest.raises(UnknownTransaction):
        of.discharge("other", Discharge(txn_id=early.txn_id))
    answer = of.discharge("control", Discharge(txn_id=early.txn_id))
    assert isinstance(answer, Ended) and isinstance(answer.error, TransactionTimeout)
    with pytest.raises(UnknownTransaction):
        of.find(early.txn_id)
    assert of.find(late.txn_id) is late


def test_what_is_remembered_is_bounded_in_number_and_time() -> None:
    """A flood of declares that time out does not pile up."""
    of = table()
    first = txn(of, 0)
    of.expired(120.0)
    for number in range(1, 300):
        one = txn(of, number, now=200.0)
        assert of.force_rollback(one.txn_id, "administrator") is not None
    with pytest.raises(UnknownTransaction):
        of.find(first.txn_id)
    with pytest.raises(TransactionRollback):
        of.find(one.txn_id)
    of.expired(1000.0)
    with pytest.raises(UnknownTransaction):
        of.find(one.txn_id)


def test_limit_of_live_transactions() -> None:
    """The next declare is answered amqp:resource-limit-exceeded; an end makes room."""
    of = table(live=2)
    one = txn(of, 1)
    txn(of, 2)
    with pytest.raises(TransactionLimitExceeded) as refused:
        txn(of, 3)
    assert refused.value.condition == "amqp:resource-limit-exceeded"
    discharge(of, one)
    assert of.declare("control", DECLARE, b"4" * 16, 0.0).state is TransactionState.LIVE


@pytest.mark.parametrize("limits", [{"operations": 3}, {"bytes_per_transaction": 3}])
def test_limits_of_work_leave_only_the_rollback(limits: dict[str, int]) -> None:
    """One operation or byte too much, by whatever work: nothing of it is taken, and it can't commit."""
    for work in ("post", "retire", "retire settled", "acquire"):
        of = table(**limits)
        one = txn(of)
        of.enlist(one, Posting(operations=2, size=2))
        items = [Delivery(), Delivery()]
        if work == "post":
            refused = of.enlist(one, Posting(operations=2, size=2))
            assert isinstance(refused, TransactionLimitExceeded)
        elif work == "acquire":
            assert of.admit(one, [1, 1]) == 1
            of.acquired(one, "consumer", items[:1], False)
            with pytest.raises(TransactionLimitExceeded):
                of.admit(one, [1])
        else:
            disposed = dispose(of, one, items, settled=work == "retire settled")
            effects = [(done_.effect.name, done_.items) for done_ in disposed.works]
            assert effects == ([("APPLY_DEFAULT", items)] if work == "retire settled" else [])
        ended = discharge(of, one)
        assert isinstance(ended.error, TransactionRollback) and "may have" in ended.error.description


def test_the_last_outcome_wins() -> None:
    """Two dispositions for one delivery in one transaction count as one operation, with the last outcome."""
    of = table()
    one = txn(of)
    delivery, withdrawn = Delivery(), Delivery()
    failed = Modified(delivery_failed=True)
    dispose(of, one, [delivery, withdrawn], ACCEPTED)
    dispose(of, one, [delivery], failed, settled=True)
    dispose(of, one, [withdrawn], None)
    assert one.operations == 2
    assert done(discharge(of, one)) == [
        ("RETURN", [delivery], failed, False),
        ("KEEP_HELD", [withdrawn], None, False),
    ]


def test_settling_is_for_good() -> None:
    """A later unsettled disposition does not bring a settled delivery back to life (2.6.12)."""
    of = table()
    one = txn(of)
    delivery = Delivery()
    dispose(of, one, [delivery], settled=True)
    dispose(of, one, [delivery], RELEASED)
    assert done(discharge(of, one)) == [("RETURN", [delivery], RELEASED, False)]


def test_settled_without_an_outcome_gives_the_default() -> None:
    """A settled transactional disposition without outcome means the source's default outcome (3.4)."""
    of = table()
    one = txn(of)
    settled, unsettled = Delivery(), Delivery()
    dispose(of, one, [settled], None, settled=True)
    dispose(of, one, [unsettled], None)
    assert done(discharge(of, one)) == [("RETURN", [settled], RELEASED, False)]


def test_ranges_over_several_links_are_one_work_for_each() -> None:
    """One range that touches two links, and outcomes apart, give one work for each link and outcome."""
    of = table()
    one = txn(of)
    items = [Delivery() for _ in range(4)]
    dispose(of, one, items[:2], consumer="x")
    dispose(of, one, items[2:3], consumer="y")
    dispose(of, one, items[3:], consumer="x")
    works = discharge(of, one).works
    assert [(work.consumer, work.items) for work in works] == [
        ("x", [items[0], items[1], items[3]]),
        ("y", [items[2]]),
    ]


def test_a_link_that_goes_leaves_its_work_to_the_transaction() -> None:
    """Deliveries that a transaction holds are not given back with their link, but at its end (4.4.4)."""
    for left, effect in ((True, "LEFT"), (False, "APPLY_DEFAULT")):
        of = table()
        one = txn(of)
        retired, acquired, free = Delivery(), Delivery(), Delivery()
        dispose(of, one, [retired])
        of.acquired(one, "consumer", [acquired], False)
        assert of.consumer_gone("consumer", [retired, acquired, free], left=left) == [free]
        assert done(discharge(of, one)) == [
            ("RETIRE", [retired], ACCEPTED, False),
            (effect, [acquired], None, False),
        ]


def test_what_the_controller_settled_is_not_left_by_its_link() -> None:
    """4.4.2: the default outcome is for what was settled; the rest had no word that holds."""
    of = table()
    one = txn(of)
    settled, left = Delivery(), Delivery()
    dispose(of, one, [settled], settled=True)
    dispose(of, one, [left])
    assert of.consumer_gone("consumer", [left], left=True) == []
    assert done(discharge(of, one, fail=True)) == [
        ("APPLY_DEFAULT", [settled], None, False),
        ("LEFT", [left], None, False),
    ]


@pytest.mark.parametrize("fail", [False, True])
def test_what_was_never_sent_whole_returns_at_the_end(fail: bool) -> None:
    """It was acquired, and aborted: neither is it kept for its link, nor is a default outcome for it. What
    follows on the link is acquired, too (4.4.3).
    """
    of = table()
    one = txn(of)
    of.flow("consumer", one.txn_id)
    lost, whole, free = Delivery(), Delivery(), Delivery()
    of.acquired(one, "consumer", [lost, whole], False)
    assert of.lose_sending(lost, "damaged") and not of.lose_sending(free, "damaged")
    assert of.acquiring("consumer") is one
    works = done(discharge(of, one, fail=fail))
    assert ("RELEASE", [lost], None, False) in works
    assert ("RELEASE", [whole], None, True) in works if fail else len(works) == 2


@pytest.mark.parametrize("kind", ["retired", "acquired", "sent settled"])
def test_what_would_be_accepted_and_was_never_sent_whole_cannot_commit(kind: str) -> None:
    """The receiver gave an outcome to a part of it, or the commit would be its acceptance."""
    of = table()
    one = txn(of)
    lost = Delivery()
    if kind != "retired":
        item = lost if kind == "acquired" else lost.message
        of.acquired(one, "consumer", [item], kind == "sent settled")
    if kind != "sent settled":
        dispose(of, one, [lost])
    assert of.lose_sending(lost.message if kind == "sent settled" else lost, "damaged")
    ended = discharge(of, one)
    assert isinstance(ended, Ended) and not ended.committed and "damaged" in str(ended.error)


def test_what_outcomes_make_of_a_message_counts_once() -> None:
    """However often an outcome is given: as much as there is of it, until the transaction is over."""
    of = table()
    one = txn(of)
    delivery = Delivery(b"x", merged_bytes=10)
    for _ in range(2):
        dispose(of, one, [delivery])
        assert (one.size_bytes, one.merged_bytes, of.merged_bytes) == (11, 10, 10)
    delivery.merged_bytes = 15
    dispose(of, one, [delivery])
    assert (one.size_bytes, one.merged_bytes, of.merged_bytes) == (16, 15, 15)
    discharge(of, one)
    assert of.merged_bytes == 0

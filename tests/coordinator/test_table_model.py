"""Random operations on two connections' transactions, held against a naive model of the rules.

The model knows messages only: where each is, and what each live transaction would do with it. It has no
states, no indexes and no grouping, and it decides commit and rollback by the sentences of 4.4.4.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from amqp_broker.coordinator import (
    ControlLinkTerminated,
    Effect,
    Ended,
    Transaction,
    TransactionError,
    TransactionRollback,
)
from amqp_broker.coordinator.errors import TransactionLimitExceeded, TransactionTimeout, UnknownTransaction
from amqp_broker.frames import Discharge, TransactionalState
from tests.coordinator.parts import ACCEPTED, DECLARE, RELEASED, Delivery, Posting, table
from tests.support.examples import examples

LIVE, OPERATIONS, TIMEOUT_S = 3, 6, 50.0
CONTROLS = ("control a", "control b")
numbers = st.integers(0, 30)


class Known:
    """What the model knows of one transaction."""

    def __init__(self, control: str, connection: int, deadline: float) -> None:
        self.control = control
        self.connection = connection
        self.deadline = deadline
        self.operations = 0
        self.posts: list[Posting] = []
        self.outcomes: dict[Delivery, tuple[Any, bool]] = {}
        self.acquired: list[Delivery] = []
        self.end = ""  # "", failed, storing, timeout, forced, over

    @property
    def live(self) -> bool:
        return self.end in ("", "failed")

    def holds(self, delivery: Delivery) -> bool:
        return self.end in ("", "failed", "storing") and (
            delivery in self.outcomes or delivery in self.acquired
        )


class Transactions(RuleBasedStateMachine):
    """`place` is where each delivery is: held, retired, returned or gone with the default outcome."""

    @initialize()
    def start(self) -> None:
        self.tables = [table(live=LIVE, operations=OPERATIONS, timeout_s=TIMEOUT_S) for _ in range(2)]
        self.now = 0.0
        self.known: dict[bytes, Known] = {}
        self.deliveries: list[list[Delivery]] = [[], []]
        self.place: dict[Delivery, str] = {}
        self.settled: set[Delivery] = set()
        self.posts: dict[Posting, str] = {}
        self.found: dict[Delivery, str] = {}
        self.found_posts: dict[Posting, str] = {}

    # --- what is done with the table's answers

    def execute(self, ended: Ended) -> None:
        for posting in ended.postings:
            assert isinstance(posting, Posting) and self.found_posts[posting] == "waits"
            self.found_posts[posting] = "available" if ended.committed else "discarded"
        self.work(ended.works)

    def work(self, works: list[Any]) -> None:
        for work in works:
            for item in work.items:
                assert self.found[item] == "held", "nothing ends twice"
                if work.settles:
                    assert item not in self.settled
                if work.effect is not Effect.KEEP_HELD:
                    self.found[item] = work.effect.name

    # --- the model's own ends

    def model_ends(self, known: Known, committed: bool) -> None:
        for posting in known.posts:
            self.posts[posting] = "available" if committed else "discarded"
        for delivery in [*known.acquired, *[d for d in known.outcomes if d not in known.acquired]]:
            outcome, settled = known.outcomes.get(delivery, (None, False))
            if committed and outcome is not None:
                self.place[delivery] = "RETIRE" if outcome is ACCEPTED else "RETURN"
            elif not committed and delivery in known.acquired:
                self.place[delivery] = "RELEASE"
            elif not committed and settled:
                self.place[delivery] = "APPLY_DEFAULT"

    def close_model(self, connection: int, control: str) -> None:
        for known in self.known.values():
            if known.connection == connection and known.control == control:
                if known.live:
                    self.model_ends(known, False)
                if known.end != "storing":
                    known.end = "over"

    def why_not(self, connection: int, txn_id: bytes) -> type[TransactionError] | None:
        known = self.known.get(txn_id)
        if known is None or known.connection != connection or known.end in ("storing", "over"):
            return UnknownTransaction
        if known.end == "timeout":
            return TransactionTimeout
        return TransactionRollback if known.end == "forced" else None

    def any_id(self, number: int) -> bytes:
        ids = [*self.known, b"never declared"]
        return ids[number % len(ids)]

    def held_ones(self, connection: int) -> list[Delivery]:
        found = self.deliveries[connection]
        return [d for d in found if self.place[d] == "held" and d not in self.settled]

    # --- rules

    @rule(connection=st.integers(0, 1), control=st.sampled_from(CONTROLS))
    def declare(self, connection: int, control: str) -> None:
        txn_id = b"%016d" % len(self.known)
        live = [
            k for k in self.known.values() if k.connection == connection and (k.live or k.end == "storing")
        ]
        try:
            self.tables[connection].declare(control, DECLARE, txn_id, self.now)
        except TransactionLimitExceeded:
            assert len(live) >= LIVE
        else:
            assert len(live) < LIVE
            self.known[txn_id] = Known(control, connection, self.now + TIMEOUT_S)

    @rule(connection=st.integers(0, 1), number=numbers, operations=st.integers(1, 4))
    def post(self, connection: int, number: int, operations: int) -> None:
        txn_id, of = self.any_id(number), self.tables[connection]
        reason = self.why_not(connection, txn_id)
        try:
            transaction = of.find(txn_id)
        except TransactionError as error:
            assert type(error) is reason
            return
        assert reason is None
        known, posting = self.known[txn_id], Posting(operations=operations)
        refused = of.enlist(transaction, posting)
        if known.end == "failed":
            assert isinstance(refused, TransactionRollback)
        elif known.operations + operations > OPERATIONS:
            assert isinstance(refused, TransactionLimitExceeded)
            known.end = "failed"
        else:
            assert refused is None
            known.operations += operations
            known.posts.append(posting)
            self.posts[posting] = self.found_posts[posting] = "waits"

    @rule(connection=st.integers(0, 1), number=numbers)
    def settled_post_fails(self, connection: int, number: int) -> None:
        txn_id = self.any_id(number)
        if self.why_not(connection, txn_id) is None:
            self.tables[connection].fail(self.tables[connection].find(txn_id), "full")
            self.known[txn_id].end = "failed"

    @rule(connection=st.integers(0, 1))
    def deliver(self, connection: int) -> None:
        delivery = Delivery()
        self.deliveries[connection].append(delivery)
        self.place[delivery] = self.found[delivery] = "held"

    @rule(connection=st.integers(0, 1), number=numbers, count=st.integers(1, 3))
    def acquire(self, connection: int, number: int, count: int) -> None:
        txn_id, of = self.any_id(number), self.tables[connection]
        reason = self.why_not(connection, txn_id)
        try:
            of.flow("consumer", txn_id)
        except TransactionError as error:
            assert type(error) is reason
            return
        assert reason is None
        known, transaction = self.known[txn_id], of.acquiring("consumer")
        assert transaction is not None and transaction.txn_id == txn_id
        room = OPERATIONS - known.operations
        try:
            admitted = of.admit(transaction, [1] * count)
        except TransactionLimitExceeded:
            assert room == 0
            known.end = "failed"
            return
        assert admitted == min(room, count)
        items = [Delivery() for _ in range(admitted)]
        of.acquired(transaction, "consumer", items, False)
        known.operations += admitted
        for delivery in items:
            self.deliveries[connection].append(delivery)
            self.place[delivery] = self.found[delivery] = "held"
            known.acquired.append(delivery)

    @rule(
        connection=st.integers(0, 1), number=numbers, start=numbers, count=st.integers(1, 3),
        accept=st.booleans(), settled=st.booleans(),
    )  # fmt: skip
    def dispose(
        self, connection: int, number: int, start: int, count: int, accept: bool, settled: bool
    ) -> None:
        of, txn_id = self.tables[connection], self.any_id(number)
        items = self.held_ones(connection)[start : start + count]
        others = [k for k in self.known.values() if k.end == "storing" and any(map(k.holds, items))]
        if not items or others:
            return
        outcome = ACCEPTED if accept else RELEASED
        state = TransactionalState(txn_id=txn_id, outcome=outcome)
        disposed = of.dispose("consumer", items, state, settled, RELEASED)
        self.work(disposed.works)
        reason = self.why_not(connection, txn_id)
        known = self.known.get(txn_id) if reason is None else None
        foreign = self.model_disposes(known, items, outcome, settled)
        if reason is not None:
            assert [type(error) for error in disposed.errors] == [reason]
            return
        assert known is not None
        assert [type(error) for error in disposed.errors] == [ControlLinkTerminated] * foreign
        if foreign:
            self.close(connection, known.control)

    def model_disposes(self, known: Known | None, items: list[Delivery], outcome: Any, settled: bool) -> bool:
        """Whether one of them belongs to another transaction."""
        holders = {item: [k for k in self.known.values() if k.holds(item)] for item in items}
        fresh = [item for item in items if not holders[item]]
        if settled:
            self.settled.update(items)
        for item in items:
            for holder in holders[item]:
                before, was = holder.outcomes.get(item, (None, False))
                if holder is known:
                    holder.outcomes[item] = (outcome, was or settled)
                elif settled:
                    holder.outcomes[item] = (before, True)
        if known is not None and fresh and known.end == "":
            if known.operations + len(fresh) <= OPERATIONS:
                known.operations += len(fresh)
                known.outcomes.update(dict.fromkeys(fresh, (outcome, settled)))
                fresh = []
            else:
                known.end = "failed"
        if settled:
            for item in fresh:
                self.place[item] = "APPLY_DEFAULT"
        return any(holder is not known for found in holders.values() for holder in found)

    @rule(connection=st.integers(0, 1), number=numbers, control=st.sampled_from(CONTROLS), fail=st.booleans())
    def discharge(self, connection: int, number: int, control: str, fail: bool) -> None:
        txn_id, of = self.any_id(number), self.tables[connection]
        known = self.known.get(txn_id)
        reason = self.why_not(connection, txn_id)
        if known is not None and known.control != control:
            reason = UnknownTransaction
        try:
            answer = of.discharge(control, Discharge(txn_id=txn_id, fail=fail))
        except UnknownTransaction:
            assert reason is UnknownTransaction
            return
        assert known is not None and reason is not UnknownTransaction
        if isinstance(answer, Transaction):
            assert not fail and known.end == ""
            known.end = "storing"
            return
        assert fail or known.end != ""
        assert (answer.error is None) is fail
        if not fail:
            assert isinstance(answer.error, TransactionTimeout) is (known.end == "timeout")
        if known.live:
            self.model_ends(known, False)
        known.end = "over"
        self.execute(answer)

    @precondition(lambda self: any(known.end == "storing" for known in self.known.values()))
    @rule(number=numbers, works=st.booleans())
    def the_store_answers(self, number: int, works: bool) -> None:
        storing = [(i, k) for i, k in self.known.items() if k.end == "storing"]
        txn_id, known = storing[number % len(storing)]
        of = self.tables[known.connection]
        (transaction,) = [found for found in of.live() if found.txn_id == txn_id]
        ended = of.commit_done(transaction) if works else of.commit_failed(transaction, "full")
        assert (ended.error is None) is works
        self.model_ends(known, works)
        known.end = "over"
        self.execute(ended)

    @rule(connection=st.integers(0, 1), control=st.sampled_from(CONTROLS))
    def close(self, connection: int, control: str) -> None:
        for ended in self.tables[connection].control_closed(control):
            self.execute(ended)
        self.close_model(connection, control)

    @rule(connection=st.integers(0, 1))
    def lose(self, connection: int) -> None:
        for ended in self.tables[connection].connection_gone():
            self.execute(ended)
        for control in CONTROLS:
            self.close_model(connection, control)

    @rule(seconds=st.sampled_from([1.0, 20.0, 49.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.now += seconds
        for connection, of in enumerate(self.tables):
            due = [k for k in self.known.values() if k.connection == connection and k.live]
            earliest = min((known.deadline for known in due), default=None)
            assert of.next_deadline() == earliest
            for ended in of.expired(self.now):
                self.execute(ended)
            for known in due:
                if known.deadline <= self.now:
                    self.model_ends(known, False)
                    known.end = "timeout"

    @rule(number=numbers)
    def force(self, number: int) -> None:
        txn_id = self.any_id(number)
        known = self.known.get(txn_id)
        for connection, of in enumerate(self.tables):
            ended = of.force_rollback(txn_id, "administrator")
            if known is not None and known.connection == connection and known.live:
                assert ended is not None
                self.model_ends(known, False)
                known.end = "forced"
                self.execute(ended)
            else:
                assert ended is None

    # --- what always holds

    @invariant()
    def both_agree(self) -> None:
        if hasattr(self, "tables"):
            assert self.found == self.place
            assert self.found_posts == self.posts
            for connection, of in enumerate(self.tables):
                mine = [known for known in self.known.values() if known.connection == connection]
                assert len(of.live()) == sum(known.live or known.end == "storing" for known in mine)
                held = any(known.holds(d) for known in mine for d in self.deliveries[connection])
                assert of.holds_any is held


TestTransactions = Transactions.TestCase
TestTransactions.settings = examples(80, stateful_step_count=50)

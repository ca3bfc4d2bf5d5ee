"""The state machine: several clients and controllers against the real broker, checked at each moment of rest.
Here are the rules by which transactions end, and those by which the broker does.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from amqp_broker.broker import Broker
from amqp_broker.frames import Accepted, Detach, TransactionalState
from amqp_broker.links import Limits
from amqp_broker.persistence import Store, StoreFailed
from amqp_broker.persistence.questions import DischargedAt
from amqp_broker.testing.blocking_peer import ConnectionLost
from amqp_broker.testing.peer import PeerError
from tests.model.at_rest import QUEUES, condition_of, snapshot
from tests.model.books import (
    ROLLBACK,
    TIMEOUT_S,
    UNKNOWN,
    ModelTransaction,
)
from tests.model.clients import Client, Control, Receiver
from tests.model.partial import Partial
from tests.model.queues import ModelMessage
from tests.model.stage import index, outcome_of, queues
from tests.promises.delivered import Promise, check_delivered
from tests.promises.fates import Fate
from tests.support.broker_clients import at_rest, round_trip

SMALL_BYTES = 20  # more than a message of one octet takes
OUTCOME_WAIT_S = round(Limits().outcome_wait_s)
FORGOTTEN_S = 600  # about when the broker forgets that a transaction timed out


class BrokerMachine(Partial):
    """Transactions end in every way there is."""

    failed_at_end: ClassVar[list[BaseException]] = []
    """What a teardown raised: where Hypothesis has cut a sequence short, it drops that."""

    # Discharges

    def _check_answer(self, control: Control, request: int, condition: str | None) -> None:
        """The answer to a discharge, after everything that the transaction settled."""
        if condition is not None and not control.rejects:
            return  # the link is gone
        (said,) = self._outcomes(control.client, control.link)
        assert said.delivery_id == request and said.settled
        if condition is None:
            assert type(said.state) is Accepted, f"expected accepted, got {said.state!r}"
        else:
            assert condition_of(said.state) == condition, f"expected {condition}, got {said.state!r}"
        assert said.at > self.settled_at, "a disposition of the transaction came after the discharge"

    def _discharge(
        self, control: Control, transaction: ModelTransaction | None, txn_id: bytes, *, fail: bool,
        stored: bool = True,
    ) -> None:  # fmt: skip
        request = self._ask_discharge(control, txn_id, fail=fail)
        condition = self._discharge_in_model(control, transaction, fail=fail, stored=stored)
        if condition is not None and not control.rejects:
            self._terminate(control, condition)
        self._rest()
        self._check_answer(control, request, condition)

    @rule(who=index, number=index, how=st.sampled_from(["commit", "full", "fail", "commit", "other"]))
    def discharge(self, who: int, number: int, how: str) -> None:
        """Commit or roll back, mostly through the control link that declared it. A commit that finds the
        disk full is rejected, everything is rolled back, and the broker goes on.
        """
        client = self._client(who)
        transaction, txn_id = self._pick(client, number)
        if how == "other" or transaction is None or transaction.control not in client.controls:
            control = self._control(client, number)
        else:
            control = transaction.control
        stored = True
        if how == "full" and transaction is not None and transaction.end == "":
            stored = transaction.control is not control
            if not stored:  # in the loop, and once more in the writer's task
                self.faults.refuse_commit(1, 2)
        self._discharge(control, transaction, txn_id, fail=how == "fail", stored=stored)
        self.faults._commit_errors.clear()

    discharge_twice_as_often = discharge

    @rule(
        who=index, numbers=st.lists(st.tuples(index, st.booleans()), min_size=2, max_size=4),
        detach=st.booleans(),
    )  # fmt: skip
    def discharge_in_a_row(self, who: int, numbers: list[tuple[int, bool]], detach: bool) -> None:
        """Several discharges in one write, and so perhaps in one commit; a detach of the control link behind
        them takes none of them back.
        """
        client = self._client(who)
        asked: list[tuple[Control, int, str | None]] = []
        chosen = [(self._pick(client, 6 * number)[0], fail) for number, fail in numbers]
        self._rest()
        for transaction, fail in chosen:
            assert transaction is not None
            if transaction.control in client.controls and transaction.control.rejects:
                request = self._ask_discharge(transaction.control, transaction.txn_id, fail=fail)
                condition = self._discharge_in_model(transaction.control, transaction, fail=fail)
                asked.append((transaction.control, request, condition))
        if detach and asked and self.rare(3):
            control = asked[-1][0]
            control.link.detach()
            self._control_gone(control)
            asked = [each for each in asked if each[0] is not control]
        self._rest()
        for control, request, condition in asked:
            assert condition_of(control.link.outcomes[request]) == condition
            self._outcomes(client, control.link)

    @rule(
        who=index, which=index, number=index, counts=st.tuples(st.integers(0, 3), st.integers(0, 3)),
        kind=index, settled=st.booleans(), end=st.sampled_from(["commit", "fail", "full"]),
    )  # fmt: skip
    def work_and_discharge(
        self, who: int, which: int, number: int, counts: tuple[int, int], kind: int, settled: bool, end: str
    ) -> None:
        """Posts to both queues, an outcome and the discharge of their transaction in one write."""
        client = self._client(who)
        transaction, txn_id = self._pick(client, 6 * number)
        assert transaction is not None
        receiver = self._holder(client, which)
        senders = [
            (self._sender(client, queue, who), count) for queue, count in zip(QUEUES, counts, strict=True)
        ]
        for sender, count in senders:
            if sender.link.credit < count or self.books.room(sender.queue) < count:
                return
        held = list(receiver.held.values())[: 1 + which % 2] if receiver is not None else []
        sizes = [message.size for message in held] + [SMALL_BYTES] * sum(counts)
        if transaction.end != "" or not transaction.fits(sizes):
            return
        for sender, count in senders:
            for each in range(count):
                message, payload = self._message(each, [True, settled], 1)
                sender.link.send(payload, settled=settled, txn_id=txn_id)
                transaction.posts.append((sender.queue, message))
                transaction.take(message.size)
        if receiver is not None:
            numbers = list(receiver.held)[: len(held)]
            state = TransactionalState(txn_id=txn_id, outcome=outcome_of(kind))
            self._say(receiver, numbers, state, settled)
        if end == "full":
            self.faults.refuse_commit(1, 2)
        self._discharge(transaction.control, transaction, txn_id, fail=end == "fail", stored=end != "full")
        self.faults._commit_errors.clear()
        for sender, count in senders:
            said = self._outcomes(client, sender.link)
            assert len(said) == (0 if settled else count)
            assert all(condition_of(each.state) is None for each in said)
            sender.link.outcomes.clear()

    work_and_discharge_twice_as_often = work_and_discharge

    def _holder(self, client: Client, which: int) -> Receiver | None:
        """A receiver that holds what no transaction does; it is given something to hold if there is none."""

        def found() -> list[Receiver]:
            return [
                each
                for each in client.receivers
                if each.held and all(self.books.holder_of(held) is None for held in each.held.values())
            ]

        if not found():
            receiver = self._supplied(client, QUEUES[which % len(QUEUES)], False, which)
            receiver.acquiring = None
            receiver.link.flow(2, txn_id=b"")
            self._rest()
        holders = found()
        return holders[which % len(holders)] if holders else None

    # The broker ends them

    @rule(number=index, seconds=st.sampled_from([0, 0, 50, 100]))
    def broker_rolls_back(self, number: int, seconds: int) -> None:
        """An administrator rolls one back, or time goes by: what lasts too long is rolled back at once. Its
        controller learns of it at its next use.
        """
        if seconds:
            if self.now + seconds < FORGOTTEN_S:
                self.now += seconds
                self.running.jump(seconds)
                self._time_out()
        else:
            candidates = [*self.books.live(), *self.books.transactions[-2:]]
            if not candidates:
                return
            transaction = candidates[number % len(candidates)]
            found = self.running.call(Broker.roll_back_transaction, transaction.txn_id, "no reason")
            assert found is transaction.open
            if found:
                self.books.roll_back(transaction, "forced")
        self._rest()

    def _time_out(self) -> None:
        for transaction in self.books.transactions:
            if transaction.open and self.now - transaction.declared_at >= TIMEOUT_S:
                self.books.roll_back(transaction, "timeout")

    # The store is at it

    @rule(who=index, which=index, number=index, kind=index, settled=st.booleans(), refused=st.booleans(),
          event=st.sampled_from(["late", "late in another", "cut", "close", "detach", "flow", "post", "time",
                                 "force", "again", "late and cut", "late and cut"]))  # fmt: skip
    def discharge_slowly(
        self, who: int, which: int, number: int, kind: int, settled: bool, refused: bool, event: str
    ) -> None:
        """Something happens while the store is at the discharge: it changes nothing of that any more."""
        client = self._client(who)
        transaction, txn_id = self._pick(client, 6 * number)
        assert transaction is not None
        if transaction.end == "" and not transaction.holds:
            self.acquire(who, 6 * number, QUEUES[which % len(QUEUES)], 3, False, which)
        if transaction.end != "":
            return
        other = self._pick(client, number)[0] if event == "late in another" else None
        self._slow_disk()
        self._rest()
        control = transaction.control
        if refused:
            self.faults.refuse_commit(1)
        with self.faults.held_commits():
            request = self._ask_discharge(control, txn_id, fail=False)
            round_trip(*client.sessions)
            transaction.end = "storing"
            self.books.clear_acquiring(transaction)
            again = self._meanwhile(event, client, transaction, other, which, kind, settled)
        ended = client not in self.clients or control not in client.controls
        if ended:
            at_rest(self.running)
        if refused:
            late = self.books.roll_back(transaction)
            if not (ended or control.rejects):
                self._terminate(control, ROLLBACK)
            self._late(late)
        else:
            self._commit(transaction)
        self._rest()
        self.faults._commit_errors.clear()
        if not ended:
            self._check_slow_answers(control, request, ROLLBACK if refused else None, again)
        if event == "late and cut" and client in self.clients:
            self._cut(client)
            self._wait_for_connections(len(self.clients))
            self._rest()

    def _check_slow_answers(
        self, control: Control, request: int, condition: str | None, again: int | None
    ) -> None:
        if control.rejects:
            found = {each.delivery_id: each.state for each in self._outcomes(control.client, control.link)}
            assert condition_of(found.pop(request)) == condition
            if again is not None:
                assert condition_of(found.pop(again)) == UNKNOWN
            assert not found

    def _meanwhile(
        self, event: str, client: Client, transaction: ModelTransaction, other: ModelTransaction | None,
        which: int, kind: int, settled: bool,
    ) -> int | None:  # fmt: skip
        """One event; returns the request of a second discharge."""
        control = transaction.control
        holds = [each for each in transaction.holds.values() if each.delivery_id in each.receiver.held]
        hold = holds[which % len(holds)] if holds else None
        if event.startswith("late") and hold is not None and hold.delivery_id is not None:
            state: Any = outcome_of(kind)
            if other is not None and other is not transaction:
                state = TransactionalState(txn_id=other.txn_id, outcome=state)
            hold.receiver.link.settle([hold.delivery_id], state, settled=settled)
            client.connection.flush()
            self._dispose([(hold.receiver, [hold.delivery_id])], state, settled)
            return None  # nothing behind it is heard before the commit
        if event.endswith("cut"):
            self._cut(client)
            self._wait_for_connections(len(self.clients))
        elif event == "close" and self.now + OUTCOME_WAIT_S < FORGOTTEN_S:
            self._detach_in_time(control)
            self._control_gone(control)
        elif event == "detach" and client.receivers:
            receiver = hold.receiver if hold is not None and hold.receiver.attached else client.receivers[0]
            receiver.link.detach()
            self._receiver_gone(receiver)
        elif event == "flow" and client.receivers:
            self._work_too_late(client, client.receivers[which % len(client.receivers)], transaction)
        elif event == "post" and (sender := self._sender(client, QUEUES[0], which)).link.may_send:
            sender.link.send(b"\x00Su\xa0\x01x", txn_id=transaction.txn_id)
            self._end_sender(client, sender, UNKNOWN)
        elif event == "time":
            self._time_passes(client)
        elif event == "force":
            assert not self.running.call(Broker.roll_back_transaction, transaction.txn_id)
        elif event == "again" and control.rejects:
            return self._ask_discharge(control, transaction.txn_id, fail=settled)
        if client in self.clients:
            round_trip(*client.sessions)
        return None

    def _detach_in_time(self, control: Control) -> None:
        """The answer waits for the outcome of the discharge, but not for ever."""
        link, session = control.link, control.link.session
        session.put(Detach(handle=link.handle, closed=True))
        round_trip(session)
        self.now += OUTCOME_WAIT_S
        self.running.jump(OUTCOME_WAIT_S)
        session.connection.pump_until(lambda: link.detached is not None)
        self._time_out()

    def _time_passes(self, client: Client) -> None:
        if self.now + TIMEOUT_S < FORGOTTEN_S:
            self.now += TIMEOUT_S
            self.running.jump(TIMEOUT_S)
            round_trip(*client.sessions)
            self._time_out()

    def _work_too_late(self, client: Client, receiver: Receiver, transaction: ModelTransaction) -> None:
        receiver.link.flow(3, txn_id=transaction.txn_id)
        self._end_receiver(receiver, "amqp:not-implemented" if receiver.browser else UNKNOWN)

    # Crashes

    def _wait_for_the_end(self, client: Client) -> None:
        try:
            while True:
                client.connection.pump(20)
        except (ConnectionLost, PeerError):
            pass

    def _stored(self, transaction: ModelTransaction) -> bool:
        """Whether the store knows that it was committed."""
        answers: list[bool] = []

        def ask(store: Store) -> None:
            answers.append(store.ask(DischargedAt(transaction.txn_id)) is not None)

        def there(broker: Broker) -> None:
            broker.writer.read(ask)

        self.running.call(there)
        at_rest(self.running)
        (answer,) = answers
        return answer

    @precondition(lambda self: self.directory is not None)
    @rule(who=index, number=index, happened=st.booleans())
    def crash_at_a_discharge(self, who: int, number: int, happened: bool) -> None:
        """The commit fails, nobody knows whether it happened, and the broker ends: after the start all of it
        is there, or nothing.
        """
        if not self.rare():
            return
        client = self._client(who)
        transaction, txn_id = self._pick(client, 6 * number)
        assert transaction is not None
        if transaction.end != "":
            return
        self._rest()
        self.faults.fail_commit(1, happened=happened)
        request = self._ask_discharge(transaction.control, txn_id, fail=False)
        self._wait_for_the_end(client)
        assert request not in transaction.control.link.outcomes, "an answer before the commit returned"
        if happened:
            for hold in transaction.holds.values():
                hold.settled = False  # what has no outcome only comes back: nobody was there to do more
            self._commit(transaction)
        self._start_after_a_crash()
        assert self._stored(transaction) is happened
        self._connect()
        self._rest()

    def _start_after_a_crash(self) -> None:
        try:
            self.running.stop()
        except StoreFailed:
            pass
        else:
            raise AssertionError("a failed commit did not end the broker")
        for each in self.clients:
            each.connection.abort()
        self.clients.clear()
        self.books.restart()
        self._start_broker()
        self.calm = 0

    @precondition(lambda self: self.directory is not None)
    @rule(who=index, queue=queues, count=st.integers(1, 4), happened=st.booleans())
    def crash_at_a_post(self, who: int, queue: str, count: int, happened: bool) -> None:
        """The same of messages outside of any transaction: a first part of them is there."""
        client = self._client(who)
        sender = self._sender(client, queue, who)
        if not self.rare():
            return
        self._rest()
        if not sender.link.may_send:
            return
        self.faults.fail_commit(1, happened=happened)
        messages = self._put(sender, count, [True], 0, settled=False)
        self._wait_for_the_end(client)
        assert not sender.link.outcomes, "an outcome before the commit returned"
        self._start_after_a_crash()
        assert bool(self._arrived(queue, messages)) is happened
        for message in messages:
            message.acquired_before = True  # for all that a store knows (3.2.1)
        self._connect()
        self._rest()

    @precondition(lambda self: self.directory is not None)
    @rule(who=index, which=index, count=st.integers(1, 4), happened=st.booleans())
    def crash_at_an_outcome(self, who: int, which: int, count: int, happened: bool) -> None:
        """The same of messages that are accepted outside of any transaction."""
        client = self._client(who)
        if not self.rare():
            return
        self._rest()
        receiver = self._holder(client, which)
        free = {
            number: message for number, message in (receiver.held.items() if receiver is not None else ())
            if message.durable and self.books.holder_of(message) is None
        }  # fmt: skip
        if receiver is None or not free:
            return
        chosen = list(free)[:count]
        self.faults.fail_commit(1, happened=happened)
        receiver.link.confirmed.clear()
        receiver.link.settle(chosen, Accepted(), settled=False)
        self._wait_for_the_end(client)
        assert not receiver.link.confirmed, "settled before the commit returned"
        for number in chosen if happened else ():
            self.books.apply(receiver, free[number], Accepted())
        self._start_after_a_crash()
        self._connect()
        self._rest()

    def _arrived(self, name: str, messages: list[ModelMessage]) -> int:
        """How many of these were stored: the model learns of as many, from the first one on."""
        at_rest(self.running)
        seen = self.running.call(snapshot)[0].get(name)
        count = 0 if seen is None else seen.messages - len(self.books.queues[name].messages)
        assert 0 <= count <= len(messages), f"{count} of {len(messages)} messages came to {name}"
        self._post(name, messages[:count])
        return count

    @rule(who=index, number=index, how=st.sampled_from(["before", "after", "by the client"]))
    def cut_at_a_discharge(self, who: int, number: int, how: str) -> None:
        """Transports break around the commit of a discharge: it is there wholly or not at all, and the store
        says which.
        """
        client = self._client(who)
        transaction, txn_id = self._pick(client, 6 * number)
        assert transaction is not None
        if not self.rare() or transaction.end != "":
            return
        self._take_credit()
        self._reset_at_a_commit(how)
        self._ask_discharge(transaction.control, txn_id, fail=False)
        gone = self._break(client, how)
        stored = self._stored(transaction)
        assert stored or how == "by the client"
        self._discharge_in_model(transaction.control, transaction, fail=False, stored=stored)
        for each in gone:
            self._cut(each)
        self._client(0)
        self._rest()

    @rule(
        who=index, queue=queues, count=st.integers(1, 5), settled=st.booleans(), durable=st.booleans(),
        how=st.sampled_from(["before", "after", "by the client"]),
    )  # fmt: skip
    def cut_at_a_post(
        self, who: int, queue: str, count: int, settled: bool, durable: bool, how: str
    ) -> None:
        """The same of messages outside of any transaction: a first part of them is there."""
        client = self._client(who)
        sender = self._sender(client, queue, who)
        if not self.rare():
            return
        self._take_credit()
        if not sender.link.may_send:
            return
        self._reset_at_a_commit(how)
        messages = self._put(sender, count, [True, durable], 0, settled=settled)
        for each in self._break(client, how):
            self._cut(each)
        arrived = self._arrived(queue, messages)
        assert arrived or how == "by the client"
        self._client(0)
        self._rest()

    def _reset_at_a_commit(self, how: str) -> None:
        if how == "before":
            self.faults.reset_before_commit(1)
        elif how == "after":
            self.faults.reset_after_commit(1)

    def _break(self, client: Client, how: str) -> list[Client]:
        """The transports break, with what was written on its way; returns the clients that they were of."""
        client.connection.flush()
        gone = list(self.clients) if how != "by the client" else [client]
        if how == "by the client":
            client.connection.abort()
        else:
            for each in gone:
                self._wait_for_the_end(each)
        self._wait_for_connections(len(self.clients) - len(gone))
        return gone

    # The end

    def teardown(self) -> None:
        """Cut everything, drain every queue, hold it against the model, and stop."""
        try:
            with ExitStack() as ends:
                if self.directory is not None:
                    ends.callback(self.directory.cleanup)
                ends.callback(self._stop)
                self._hold_against_the_model()
        except BaseException as error:
            self.failed_at_end.append(error)
            raise

    def _stop(self) -> None:
        for client in self.clients:
            client.connection.abort()
        if self.broker is not None:
            self.broker.stop()

    def _hold_against_the_model(self) -> None:
        if not self.agrees or self.broker is None or not self.broker.alive:
            return
        self._take_credit()
        self._all_cut()
        self._wait_for_connections(0)
        if len(self.books.transactions) % 2:  # what is stored is what was there
            self._restart()
        self._drain_all()
        for transaction in self.books.transactions:
            assert self._stored(transaction) is transaction.committed, f"{transaction!r}"

    def _drain_all(self) -> None:
        client = self._connect()
        for receiver in list(client.receivers):
            receiver.link.detach()
            client.receivers.remove(receiver)
        for name in QUEUES:
            queue = self.books.queues[name]
            receiver = self._attach_receiver(client, 0, name, 0)
            promises = [Promise(each.name, [each.name], Fate.COMMITTED, line=name) for each in queue.free()]
            found: list[str] = []
            while True:
                receiver.link.flow(50)
                self._rest()
                if not receiver.held:
                    break
                found += [message.name for message in receiver.held.values()]
                receiver.link.settle(list(receiver.held), Accepted())
                self._dispose([(receiver, list(receiver.held))], Accepted(), True)
            self._rest()
            assert check_delivered(name, found, promises) == []
            assert not queue.messages

"""The rules of work: messages and outcomes, in transactions and beside them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from amqp_broker.frames import (
    RECEIVER,
    Accepted,
    Disposition,
    Rejected,
    TransactionalState,
)
from tests.model.at_rest import QUEUES, condition_of
from tests.model.books import (
    ROLLBACK,
    TOO_MUCH,
    ModelTransaction,
)
from tests.model.clients import Client, Receiver
from tests.model.queues import ModelMessage
from tests.model.stage import SIZES, Stage, index, outcome_of, queues


class Work(Stage):
    """Clients declare, post, receive and settle; no rule here ends a transaction on purpose."""

    # Credit

    @rule(
        who=index, which=index, credit=st.integers(0, 20), drain=st.booleans(),
        how=st.sampled_from(["in one", "as before", "in none"]), number=index,
    )  # fmt: skip
    def flow(self, who: int, which: int, credit: int, drain: bool, how: str, number: int) -> None:
        """Credit, more or less of it; what is sent for it is acquired in a transaction, or in none; a drain
        is answered.
        """
        client = self._client(who)
        if not client.receivers:
            self._attach_receiver(client, which, QUEUES[number % len(QUEUES)], 0)
        receiver = client.receivers[which % len(client.receivers)]
        condition = None
        if how == "in one":
            transaction, txn_id = self._pick(client, number)
            condition = self.books.why_not(transaction, client)
            receiver.link.flow(credit, drain=drain, txn_id=txn_id)
            if receiver.browser:
                condition = "amqp:not-implemented"
            if condition is None:
                receiver.acquiring = transaction
        elif how == "in none":
            receiver.link.flow(credit, drain=drain, txn_id=b"")
            receiver.acquiring = None
        else:
            receiver.link.flow(credit, drain=drain)
        if condition is not None:
            self._end_receiver(receiver, condition)
        self._rest()
        if drain and receiver.attached:
            assert receiver.link.credit == 0, f"the drain of {receiver!r} was not answered"

    @rule(
        who=index, number=index, queue=queues, credit=st.sampled_from([1, 3, 8]), settled=st.booleans(),
        more=index,
    )  # fmt: skip
    def acquire(self, who: int, number: int, queue: str, credit: int, settled: bool, more: int) -> None:
        """What controllers do: credit in a transaction, for what is there."""
        client = self._client(who)
        transaction, txn_id = self._pick(client, number)
        receiver = self._supplied(client, queue, settled, more)
        condition = self.books.why_not(transaction, client)
        receiver.link.flow(credit, txn_id=txn_id)
        if condition is None:
            receiver.acquiring = transaction
        else:
            self._end_receiver(receiver, condition)
        self._rest()

    acquire_twice_as_often = acquire

    def _supplied(self, client: Client, queue: str, settled: bool, which: int) -> Receiver:
        """A consumer of a queue that has something for it, without credit left."""
        found = [
            each
            for each in client.receivers
            if (each.queue, each.settled, each.browser) == (queue, settled, False)
        ]
        if found:
            receiver = found[which % len(found)]
        else:
            receiver = self._attach_receiver(client, which, queue, 1 if settled else 3 * which)
        if receiver.link.credit:
            receiver.link.flow(0)
            self._rest()
        if receiver.attached and not self.books.queues[queue].wanted_by(receiver):
            self.send(which, queue, 4, False, [True, False], which % len(SIZES))
        if not receiver.attached:
            return self._supplied(client, queue, settled, which)
        return receiver

    # Declaring

    @rule(who=index, which=index)
    def declare(self, who: int, which: int) -> None:
        """A new transaction, unless the connection has as many as it may."""
        client = self._client(who)
        self._declare(self._control(client, which))
        self._rest()

    # Posting

    @rule(
        who=index, queue=queues, count=st.integers(1, 12), settled=st.booleans(),
        durable=st.lists(st.booleans(), min_size=1, max_size=3), size=st.integers(0, len(SIZES) - 1),
    )  # fmt: skip
    def send(self, who: int, queue: str, count: int, settled: bool, durable: list[bool], size: int) -> None:
        """A run of messages outside of any transaction."""
        client = self._client(who)
        sender = self._sender(client, queue, who)
        messages = self._put(sender, count, durable, size, settled=settled)
        self._post(queue, messages)
        self._rest()
        said = self._outcomes(client, sender.link)
        assert len(said) == (0 if settled else len(messages))
        assert all(type(each.state) is Accepted and each.settled for each in said)
        sender.link.outcomes.clear()

    @rule(who=index, queue=queues, count=st.integers(1, 4))
    def send_to_a_full_disk(self, who: int, queue: str, count: int) -> None:
        """The disk has no room for a moment: what was not stored is rejected, and nothing else is."""
        client = self._client(who)
        sender = self._sender(client, queue, who)
        self._rest()
        self.faults.refuse_commit(1)
        messages = self._put(sender, count, [True], 0, settled=False)
        link = sender.link
        client.connection.pump_until(lambda: len(link.outcomes) == len(messages))
        self.faults._commit_errors.clear()
        said = self._outcomes(client, link)
        assert all(type(each.state) in (Accepted, Rejected) and each.settled for each in said)
        stored = {each.delivery_id for each in said if type(each.state) is Accepted}
        numbers = sorted(link.outcomes)
        self._post(queue, [each for each, n in zip(messages, numbers, strict=True) if n in stored])
        link.outcomes.clear()
        self._rest()

    @rule(
        who=index, number=index, queue=queues, count=st.integers(1, 8), settled=st.booleans(),
        durable=st.lists(st.booleans(), min_size=1, max_size=3), size=st.integers(0, len(SIZES) - 1),
    )  # fmt: skip
    def post(
        self, who: int, number: int, queue: str, count: int, settled: bool, durable: list[bool], size: int
    ) -> None:
        """A run of messages in a transaction: nobody sees them, their room is kept, and the provisional
        outcome says whether there is any (4.4.1).
        """
        client = self._client(who)
        transaction, txn_id = self._pick(client, number)
        sender = self._sender(client, queue, who)
        condition = self.books.why_not(transaction, client)
        made = [self._message(each, durable, size) for each in range(count)][: max(0, sender.link.credit)]
        sizes = [message.size for message, _ in made][: self.books.room(queue)]
        if settled and transaction is not None and not transaction.fits(sizes):
            del made[1:]  # nothing would say how many of them were within the bounds
        numbers = [sender.link.send(payload, settled=settled, txn_id=txn_id) for _, payload in made]
        if not made:
            return
        if condition is not None:
            self._end_sender(client, sender, condition)
            self._rest()
            assert not self._outcomes(client, sender.link), "posts that can't be had an outcome"
            return
        assert transaction is not None
        messages = [message for message, _ in made]
        if settled:
            self._post_settled(transaction, queue, messages)
        else:
            client.connection.pump_until(lambda: all(each in sender.link.outcomes for each in numbers))
            self._post_unsettled(transaction, queue, messages, [sender.link.outcomes[n] for n in numbers])
            assert all(each.settled for each in self._outcomes(client, sender.link))
            sender.link.outcomes.clear()
        self._rest()

    post_twice_as_often = post

    def _post_settled(self, transaction: ModelTransaction, queue: str, messages: list[ModelMessage]) -> None:
        """4.4.4.1: "Should the resource be unable to process the delivery it MUST NOT allow the successful
        discharge of the associated transaction".
        """
        if transaction.end == "failed":
            return
        taken = messages[: self.books.room(queue)]
        fit = transaction.fits([each.size for each in taken])
        if len(taken) < len(messages) or not fit:
            transaction.end = "failed"
        for message in taken if fit else []:
            transaction.posts.append((queue, message))
            transaction.take(message.size)

    def _post_unsettled(
        self, transaction: ModelTransaction, queue: str, messages: list[ModelMessage], states: list[object]
    ) -> None:
        for state in states:
            assert isinstance(state, TransactionalState) and state.txn_id == transaction.txn_id
        conditions = [condition_of(state) for state in states]
        taken = messages[: self.books.room(queue)]
        expected: list[str | None] = [None] * len(taken) + [TOO_MUCH] * (len(messages) - len(taken))
        if transaction.end == "failed":
            assert all(each in (ROLLBACK, TOO_MUCH) for each in conditions), f"{conditions}"
        elif transaction.fits([message.size for message in taken]):
            assert conditions == expected, f"{conditions}, expected {expected}"
            if len(taken) < len(messages):
                transaction.end = "failed"
        else:  # how far it went depends on how the posts came
            accepted = sum(each is None for each in conditions)
            assert accepted < len(taken), f"{transaction!r} took more than it may"
            assert not any(each is None for each in conditions[accepted:]), f"{conditions}"
            assert transaction.fits([message.size for message in taken[:accepted]])
            transaction.end = "failed"
        for message, condition in zip(messages, conditions, strict=True):
            if condition is None:
                transaction.posts.append((queue, message))
                transaction.take(message.size)

    # Outcomes

    @rule(
        who=index, which=index, first=index, count=st.integers(1, 12), kind=index, settled=st.booleans(),
        how=st.sampled_from(["in order", "wide", "wide", "backwards", "full"]),
    )  # fmt: skip
    def settle(
        self, who: int, which: int, first: int, count: int, kind: int, settled: bool, how: str
    ) -> None:
        """An outcome outside of any transaction. For what a live one holds, its control link is terminated
        (4.4.4.3). The disk may be full for a moment: that is nothing to the outcome.
        """
        if how == "full":
            self.faults.refuse_commit(1)
        self._settle(self._client(who), which, first, count, outcome_of(kind), settled, how)
        self.faults._commit_errors.clear()

    @rule(
        who=index, which=index, queue=queues, count=st.integers(1, 12), kind=index, credit=st.integers(2, 30)
    )  # fmt: skip
    def settle_and_go_on(self, who: int, which: int, queue: str, count: int, kind: int, credit: int) -> None:
        """What most consumers do: settle the oldest, and give credit again."""
        client = self._client(who)
        unsettled = [each for each in client.receivers if not (each.browser or each.settled)]
        found = [each for each in unsettled if each.queue == queue]
        receiver = found[which % len(found)] if found else self._attach_receiver(client, which, queue, 0)
        if oldest := list(receiver.held)[:count]:
            self._say(receiver, oldest, outcome_of(kind), True)
            self._rest()
        if receiver.attached:
            receiver.link.flow(credit)
            self._rest()

    @rule(
        who=index, which=index, first=index, count=st.integers(1, 6), kind=index, settled=st.booleans(),
        wide=st.booleans(), number=index,
    )  # fmt: skip
    def settle_in(
        self, who: int, which: int, first: int, count: int, kind: int, settled: bool, wide: bool, number: int
    ) -> None:
        """An outcome in a transaction, also a second one, or none at all; for what another one holds its
        control link is terminated (4.4.2).
        """
        client = self._client(who)
        transaction, txn_id = self._pick(client, number)
        if transaction is not None and transaction.holds and number % 4 == 1:
            declared = self._declare(self._control(client, which))
            self._rest()
            transaction = declared or transaction  # another one has no say in what this one holds
            txn_id = transaction.txn_id
        if not any(each.held for each in client.receivers):
            self._supplied(client, QUEUES[which % len(QUEUES)], False, which).link.flow(count)
            self._rest()
        outcome = None if kind % 11 == 10 else outcome_of(kind)
        state = TransactionalState(txn_id=txn_id, outcome=outcome)
        if transaction is not None and not transaction.fits([SIZES[-1]] * count):
            count, wide = 1, False  # which of several were within the bounds depends on how they came
        self._settle(client, which, first, count, state, settled, "wide" if wide else "in order")

    settle_in_twice_as_often = settle_in_thrice_as_often = settle_in

    def _settle(
        self, client: Client, which: int, first: int, count: int, state: Any, settled: bool, how: str
    ) -> None:
        """A slice of what one link holds; "wide": of what all links of its session hold, in one frame."""
        wide = how == "wide"
        receivers = [each for each in client.receivers if each.held]
        if not receivers:
            return
        receiver = self._one_of(receivers, which, state)
        session = receiver.link.session
        owners = dict.fromkeys(receiver.held, receiver)
        if wide:
            others = [each for each in client.receivers if each.link.session is session]
            owners = {number: each for each in others for number in each.held}
        numbers = sorted(owners)
        start = first % len(numbers)
        numbers = numbers[start : start + count]
        if how == "backwards":
            numbers.reverse()
        if wide:
            session.put(
                Disposition(role=RECEIVER, first=numbers[0], last=numbers[-1], settled=settled, state=state)
            )
        else:
            receiver.link.settle(numbers, state, settled=settled)
        runs: list[tuple[Receiver, list[int]]] = []
        for number in numbers:
            if runs and runs[-1][0] is owners[number]:
                runs[-1][1].append(number)
            else:
                runs.append((owners[number], [number]))
        places = {body: place for place, body in enumerate(self.books.queues[receiver.queue].messages)}
        given = [places[receiver.held[number].body] for number in numbers if owners[number] is receiver]
        self._dispose(runs, state, settled)
        if len(runs) == 1 and given == sorted(given) and not isinstance(state, TransactionalState):
            self.books.returned = bool(self.ends)  # one run is served in its order
        if wide:
            unknown = set(range(numbers[0], numbers[-1] + 1)) - set(numbers)
            self.books.lose_unknown(session, unknown, state, settled)
        self._rest()

    def _say(self, receiver: Receiver, delivery_ids: list[int], state: Any, settled: bool) -> None:
        receiver.link.settle(delivery_ids, state, settled=settled)
        self._dispose([(receiver, delivery_ids)], state, settled)

    def _one_of(self, receivers: list[Receiver], which: int, state: Any) -> Receiver:
        """One whose deliveries another transaction holds, or the one of `state`, or any one."""
        transaction = self._transaction(state.txn_id) if isinstance(state, TransactionalState) else None
        holders = {
            each: {self.books.holder_of(message) for message in each.held.values()} for each in receivers
        }
        foreign = [each for each in receivers if holders[each] - {None, transaction}]
        own = [each for each in receivers if transaction in holders[each] and each not in foreign]
        chosen = [foreign, own, receivers][which % 3] or receivers
        return chosen[which // 3 % len(chosen)]

    @rule(
        who=index, number=index, queue=queues, credit=st.sampled_from([2, 4]), kinds=st.tuples(index, index),
        settled=st.tuples(st.booleans(), st.booleans()), count=st.integers(0, 3),
    )  # fmt: skip
    def transform(
        self, who: int, number: int, queue: str, credit: int, kinds: tuple[int, int],
        settled: tuple[bool, bool], count: int,
    ) -> None:  # fmt: skip
        """Acquire, give all of it an outcome and the first of it another one, and post what became of it:
        all in one transaction.
        """
        client = self._client(who)
        self.acquire(who, 6 * number, queue, credit, False, number)
        transaction, txn_id = self._pick(client, 6 * number)
        assert transaction is not None
        holds = [each for each in transaction.holds.values() if each.delivery_id in each.receiver.held]
        holds = [each for each in holds if each.receiver.client is client and not each.receiver.narrow]
        if holds and transaction.end == "":
            receiver = holds[-1].receiver
            numbers = [each.delivery_id for each in holds if each.receiver is receiver]
            first = [each for each in numbers[:1] if each is not None]
            rest = [each for each in numbers[1:] if each is not None]
            for chosen, kind, how in ((first, kinds[0], False), (rest, kinds[0], settled[0])):
                self._say(receiver, chosen, TransactionalState(txn_id=txn_id, outcome=outcome_of(kind)), how)
            state = TransactionalState(txn_id=txn_id, outcome=outcome_of(kinds[1]))
            self._say(receiver, first, state, settled[1])
            self._rest()
        self.post(who, 6 * number, QUEUES[number % len(QUEUES)], count + 1, settled[1], [True], count)

"""What has to hold whenever nothing moves, and what the machine knows."""

from __future__ import annotations

import tempfile
from typing import Any, Final

import attrs
from hypothesis.stateful import RuleBasedStateMachine

from amqp_broker.broker import Broker
from amqp_broker.frames import Accepted, Error, Message, Modified, Rejected, Released, TransactionalState
from amqp_broker.queue import Consumer
from amqp_broker.testing import ScriptedFaults
from amqp_broker.testing.peer import PeerLink
from tests.model.books import (
    MAX_MESSAGES,
    NOT_ALLOWED,
    OPERATIONS,
    ROLLBACK,
    SIZE_BYTES,
    TIMEOUT,
    TOO_MUCH,
    Books,
    Hold,
    ModelTransaction,
)
from tests.model.clients import Client, Control, Receiver, Sender
from tests.model.queues import ModelMessage
from tests.model.wire import Said
from tests.support.broker_clients import settle_down
from tests.support.jumping_broker import JumpingBroker

QUEUES: Final = ("red", "blue")


@attrs.frozen
class QueueSeen:
    """What the broker counts of one queue."""

    messages: int
    size: int
    volatile: int
    available: int
    reserved: tuple[int, int]
    in_transactions: int
    pending_posts: int


@attrs.frozen
class ConnectionSeen:
    """What the broker keeps for one connection: txn-ids, how many deliveries its transactions hold, and of
    each consumer (unsettled, acquiring in a transaction); `waiting` is what should be empty at rest.
    """

    live: set[bytes]
    aborted: set[bytes]
    held: int
    consumers: dict[str, tuple[int, bool]]
    waiting: list[str]


class AtRest(RuleBasedStateMachine):
    """The state, without rules, and all checks of it."""

    def __init__(self) -> None:
        super().__init__()
        self.directory: tempfile.TemporaryDirectory[str] | None = None
        self.faults = ScriptedFaults()
        self.clients: list[Client] = []
        self.clients_made = 0
        self.books = Books(QUEUES)
        self.bodies_made = 0
        self.now = 0  # virtual seconds
        self.agrees = True  # false from a check that failed on
        self.calm = 0  # moments of rest since something was torn down
        self.broker: JumpingBroker | None = None
        self.taken: set[ModelMessage] = set()  # what was delivered since the last moment of rest
        self.settled_at = 0  # the last moment at which the broker settled something, as `Said` counts
        self.ends: dict[PeerLink, str] = {}
        """The links that the broker has to end, and with which error, since the last look."""

    @property
    def running(self) -> JumpingBroker:
        """The broker, which is started."""
        assert self.broker is not None
        return self.broker

    def rare(self, often: int = 1) -> bool:
        """Whether what tears down may happen now: mostly there is something to tear down.

        Asked inside the rules, not as their precondition: timing may differ, and what is drawn may not.
        """
        return self.calm >= 12 // often

    # Ends of links, in the model

    def _control_gone(self, control: Control) -> None:
        """4.1: "If the control link is closed while there exist non-discharged transactions it created, then
        all such transactions are immediately rolled back".
        """
        control.client.controls.remove(control)
        for transaction in self.books.transactions:
            if transaction.control is control and transaction.end != "storing":
                if transaction.open:
                    self._late(self.books.roll_back(transaction))
                transaction.end = "over"

    def _receiver_gone(self, receiver: Receiver, *, broken: bool = False) -> None:
        receiver.client.receivers.remove(receiver)
        self.books.receiver_gone(receiver, broken=broken)

    def _terminate(self, control: Control, condition: str) -> None:
        """The broker ends a control link."""
        if control in control.client.controls:
            self.ends[control.link] = condition
            self._control_gone(control)

    def _end_receiver(self, receiver: Receiver, condition: str) -> None:
        """The broker ends a receiver's link."""
        if receiver.attached:
            self.ends[receiver.link] = condition
            self._receiver_gone(receiver)

    def _end_sender(self, client: Client, sender: Sender, condition: str) -> None:
        """The broker ends a sender's link."""
        self.ends[sender.link] = condition
        client.senders.remove(sender)

    def _late(self, found: list[tuple[Hold, Any, bool]]) -> None:
        """Dispositions that came while the store was at the discharge count as if they came now."""
        for hold, state, settled in found:
            receiver = hold.receiver
            assert hold.delivery_id is not None
            if hold.delivery_id not in receiver.held:  # settled, so that nobody but the broker knows it
                receiver.held[hold.delivery_id] = hold.message
            self._dispose([(receiver, [hold.delivery_id])], state, settled)

    def _dispose(self, runs: list[tuple[Receiver, list[int]]], state: Any, settled: bool) -> None:
        """A disposition for deliveries, each run of one link, in a transaction or not, with all that
        follows; what one outcome ends is over for the next one, as if each had a frame of its own.
        """
        for receiver, delivery_ids in runs:
            rest = delivery_ids
            while receiver.attached and (rest := [each for each in rest if each in receiver.held]):
                count = self._before_end(receiver, rest, state)
                for link, condition in self._dispose_run(receiver, rest[:count], state, settled):
                    if isinstance(link, Control):
                        self._terminate(link, condition)
                    else:
                        self._end_receiver(link, condition)
                rest = rest[count:]
        if settled:  # what is behind an outcome that ended something is settled all the same, and not told
            mine = {(receiver, each) for receiver, delivery_ids in runs for each in delivery_ids}
            self.books.settled = [each for each in self.books.settled if each[:2] not in mine]

    def _before_end(self, receiver: Receiver, delivery_ids: list[int], state: Any) -> int:
        """How many there are up to the first one that ends a control link."""
        named = self._transaction(state.txn_id) if isinstance(state, TransactionalState) else None
        if isinstance(state, TransactionalState) and (named is None or not named.open):
            return len(delivery_ids)
        for at, delivery_id in enumerate(delivery_ids):
            holder = self.books.holder_of(receiver.held[delivery_id])
            if holder is not None and holder.open and holder is not named:
                return at + 1
        return len(delivery_ids)

    def _dispose_run(
        self, receiver: Receiver, delivery_ids: list[int], state: Any, settled: bool
    ) -> list[tuple[Control | Receiver, str]]:
        books = self.books
        outcome = state.outcome if isinstance(state, TransactionalState) else state
        if isinstance(outcome, (Accepted, Rejected, Released, Modified)):
            receiver.said.update(delivery_ids)
        else:
            receiver.said.difference_update(delivery_ids)
        delivery_ids = books.wait_for_the_store(receiver, delivery_ids, state, settled)
        if not delivery_ids:
            return []
        if receiver.narrow and not isinstance(outcome or receiver.default, (Accepted, Released)):
            if isinstance(state, TransactionalState):
                books.fail(state.txn_id)
            books.refuse(receiver, delivery_ids, settled)
            return [(receiver, NOT_ALLOWED)]
        if not isinstance(state, TransactionalState):
            controls = books.dispose_plainly(receiver, delivery_ids, state, settled)
            return [(control, ROLLBACK) for control in controls]
        transaction = self._transaction(state.txn_id)
        condition = books.why_not(transaction, receiver.client)
        if condition is not None:
            books.dispose_in_none(receiver, delivery_ids, settled)
            return [(receiver, condition)]
        assert transaction is not None
        foreign = books.dispose(transaction, receiver, delivery_ids, state.outcome, settled)
        return [(transaction.control, ROLLBACK)] if foreign else []

    def _transaction(self, txn_id: bytes) -> ModelTransaction | None:
        found = [each for each in self.books.transactions if each.txn_id == txn_id]
        return found[0] if found else None

    # At rest

    def _rest(self) -> None:
        """Wait until nothing moves, take over what was delivered, and check everything."""
        self.calm += 1
        self.agrees = False
        settle_down(self.running, *[each for client in self.clients for each in client.sessions])
        self.taken.clear()
        self._check_ends()
        receivers = [each for client in self.clients for each in client.receivers]
        for receiver in receivers:
            if receiver.browser:
                self._look(receiver)
        for receiver in receivers:
            if not receiver.browser:
                self._take(receiver)
        for receiver in receivers:
            if receiver.browser:
                self._cross_out(receiver)
        self._check_settled()
        if not self.books.returned:
            self._check_order()
        self._check_served()
        self.books.returned = False
        self._check_counts()
        self.agrees = True

    def _check_ends(self) -> None:
        """The broker ended the links that it had to end, and those that could not go on."""
        ended: dict[PeerLink, Error] = {}
        for client in self.clients:
            ended.update(client.connection.ended)
            client.connection.ended.clear()
        for client in list(self.clients):
            for receiver in list(client.receivers):
                if receiver.link in ended and receiver.link not in self.ends:
                    condition = ended[receiver.link].condition
                    self._could_not_go_on(receiver, condition)
                    self.ends[receiver.link] = condition
        found = {link.name: error.condition for link, error in ended.items()}
        expected = {link.name: condition for link, condition in self.ends.items()}
        assert found == expected, f"links that the broker ended: {found}, expected {expected}"
        self.ends.clear()

    def _could_not_go_on(self, receiver: Receiver, condition: str) -> None:
        """A link that acquires in a transaction ends when that is over without a discharge, or is full."""
        transaction = receiver.acquiring
        assert transaction is not None, f"{receiver!r} was ended with {condition}"
        self.books.returned = True  # what was assigned to it, and never sent
        if transaction.open:
            self._take(receiver)
            assert condition == TOO_MUCH, f"{receiver!r} was ended with {condition}"
            largest = max((each.size for each in self._queue(receiver).free()), default=0)
            full = transaction.operations == OPERATIONS or transaction.size_bytes + largest > SIZE_BYTES
            assert full, f"{transaction!r} is not full"
            transaction.end = "failed"
        else:
            assert not receiver.link.deliveries
            expected = TIMEOUT if transaction.end == "timeout" or transaction.timed_out else ROLLBACK
            assert condition == expected, f"{receiver!r} was ended with {condition}"
        self._receiver_gone(receiver)

    def _queue(self, receiver: Receiver) -> Any:
        return self.books.queues[receiver.queue]

    def _take(self, receiver: Receiver) -> None:
        """What a consumer got, in which transaction."""
        link = receiver.link
        assert link.credit >= 0, f"{receiver!r} got more than its credit"
        queue = self.books.queues[receiver.queue]
        places = {body: place for place, body in enumerate(queue.messages)}
        transaction = receiver.acquiring
        last = -1
        while link.deliveries:
            arrived = link.deliveries.popleft()
            state = arrived.state
            expected = None if transaction is None else transaction.txn_id
            found = state.txn_id if isinstance(state, TransactionalState) else state
            assert found == expected, f"{receiver!r} got a delivery in {found!r}, expected {transaction!r}"
            body = _body(arrived.payload)
            assert arrived.settled == receiver.settled
            message = queue.deliver(body, receiver, receiver.settled and transaction is None)
            self._check_header(message, arrived.payload)
            if not (self.books.returned or message.acquired_before):
                assert places[body] > last, f"{message!r} came after one that stands behind it"
                last = places[body]
            self.taken.add(message)
            if not receiver.settled:
                receiver.held[arrived.delivery_id] = message
            if transaction is not None:
                assert transaction.open, f"{receiver!r} got {message!r} in {transaction!r}"
                assert transaction.fits([message.size]), f"{transaction!r} took more than it may"
                number = None if receiver.settled else arrived.delivery_id
                transaction.holds[message] = Hold(message, receiver, number, acquired=True)
                transaction.take(message.size)

    def _check_order(self) -> None:
        """Nothing was passed over: no free message stands before one that was just delivered."""
        for name, queue in self.books.queues.items():
            places = {message: place for place, message in enumerate(queue.messages.values())}
            last = max((places[each] for each in self.taken if each in places), default=-1)
            for message in queue.free():
                if not message.excluded:
                    assert places[message] > last, f"{name}: {message!r} was passed over"

    def _look(self, browser: Receiver) -> None:
        """What a browser saw: there, once; what a live transaction has acquired, too."""
        assert browser.link.credit >= 0, f"{browser!r} got more than its credit"
        queue = self.books.queues[browser.queue]
        while browser.link.deliveries:
            arrived = browser.link.deliveries.popleft()
            body = _body(arrived.payload)
            message = queue.messages.get(body)
            assert message is not None and body not in browser.seen, f"{browser!r} saw {body[:20]!r}"
            assert self.books.visible(message), f"{browser!r} saw {message!r}"
            assert arrived.state is None
            browser.seen.add(body)
            browser.owed.pop(body, None)
            if not arrived.settled:
                browser.link.settle([arrived], Released())

    def _cross_out(self, browser: Receiver) -> None:
        """What a browser need not be shown: held when it went by, or gone. Nothing else was passed over."""
        places = {body: place for place, body in enumerate(self.books.queues[browser.queue].messages)}
        last = max((places[body] for body in browser.seen if body in places), default=-1)
        for message in list(browser.owed.values()):
            visible = self.books.visible(message)
            passed = places.get(message.body, -1) < last
            if visible and passed:  # between its assignment and its transfer nobody sees a message
                missed = message.acquired_before or message in self.taken or self.books.returned
                assert missed, f"{browser!r} passed over {message!r}"
            if passed or not visible:
                del browser.owed[message.body]

    def _check_header(self, message: ModelMessage, payload: bytes) -> None:
        seen = Message(payload)
        header = seen.header
        assert bool(header.durable) == message.durable
        wrong = message.wrong_count(header.delivery_count or 0)
        assert not wrong, wrong
        assert bool(header.first_acquirer) == (not message.acquired_before), f"first of {message!r}"
        annotations = {key.value: each for key, each in (seen.message_annotations or {}).items()}
        assert annotations == message.annotations, f"annotations of {message!r}"

    def _check_settled(self) -> None:
        """The broker settled what it had to settle, once, each with the state that it ended in."""
        found = []
        for client in self.clients:
            found += [each for each in client.connection.said if each.kind == "settled"]
            client.connection.said = [each for each in client.connection.said if each.kind != "settled"]
        seen = {(each.link.session, each.delivery_id): each for each in found}
        assert len(seen) == len(found), f"settled twice: {found}"
        for receiver, number, state in self.books.settled:
            said = seen.pop((receiver.link.session, number), None)
            if said is not None:
                assert said.state == state, f"{said!r}, expected {state!r}"
                self.settled_at = max(self.settled_at, said.at)
            else:  # else it may have gone before
                assert not receiver.attached, f"{receiver!r}: delivery {number} was not settled"
        assert not seen, f"settled {list(seen.values())}"
        self.books.settled.clear()

    def _check_served(self) -> None:
        """Nobody waits with credit for what is there, and senders have credit while there is room."""
        for client in self.clients:
            for receiver in client.receivers:
                if receiver.link.credit <= 0:
                    continue
                if receiver.browser:
                    assert not receiver.owed, f"{receiver!r} was not shown {receiver.owed!r}"
                else:
                    wanted = self._queue(receiver).wanted_by(receiver)
                    assert not wanted, f"{receiver!r} waits for {wanted!r}"
        for name, queue in self.books.queues.items():
            taken = len(queue.messages) + self.books.reserved(name)[0]
            senders = [each for client in self.clients for each in client.senders if each.queue == name]
            credit = sum([sender.link.credit for sender in senders])
            assert credit <= max(0, MAX_MESSAGES - taken), f"{credit} may come beside {taken} in {name!r}"
            if senders and taken <= MAX_MESSAGES * 0.8:
                assert credit > 0, f"nobody has credit for {name!r}"

    # What the broker counts

    def _check_counts(self) -> None:
        books = self.books
        queues, connections, live, names = self.running.call(snapshot)
        assert names == sum(client.links() for client in self.clients), f"{names} link names are kept"
        assert live == {each.txn_id for each in books.live()}, "the directory of live transactions"
        for name, queue in books.queues.items():
            seen = queues.get(name)
            if seen is None:
                assert not queue.messages
                continue
            queue.check_counts(seen.messages, seen.size, seen.volatile)
            available = sum(each.available for each in queue.messages.values())
            assert seen.available == available, f"{name}: {seen.available} available, expected {available}"
            assert seen.reserved == books.reserved(name), f"{name}: {seen.reserved} are reserved"
            acquired = sum(
                hold.acquired and hold.receiver.queue == name
                for each in books.live()
                for hold in each.holds.values()
            )
            assert seen.in_transactions == acquired, f"{name}: {seen.in_transactions} in transactions"
            assert not seen.pending_posts, f"{name}: {seen.pending_posts} posts are under way"
        letters = queues.get("dead-letters")
        assert (0 if letters is None else letters.messages) == books.buried, f"dead letters: {letters}"
        assert set(connections) == {f"client-{client.number}" for client in self.clients}
        for client in self.clients:
            self._check_connection(client, connections[f"client-{client.number}"])

    def _check_connection(self, client: Client, seen: ConnectionSeen) -> None:
        mine = [each for each in self.books.transactions if each.control.client is client]
        assert seen.live == {each.txn_id for each in mine if each.holding}, f"transactions of {client!r}"
        aborted = {each.txn_id for each in mine if each.end in ("timeout", "forced")}
        assert seen.aborted == aborted, f"transactions of {client!r} that are remembered"
        holds = sum(len(each.holds) for each in mine if each.holding)
        assert seen.held == holds, f"{client!r}: transactions hold {seen.held}, expected {holds}"
        expected = {
            each.link.name: (len(each.held), each.acquiring is not None)
            for each in client.receivers
            if not each.browser
        }
        assert seen.consumers == expected, f"consumers of {client!r}: {seen.consumers}, expected {expected}"
        assert not seen.waiting, f"{client!r}: {seen.waiting}"

    # What a control link was told

    def _outcomes(self, client: Client, link: PeerLink) -> list[Said]:
        """What the broker said of what was sent on a link, since the last look."""
        found = [each for each in client.connection.said if each.link is link]
        client.connection.said = [each for each in client.connection.said if each.link is not link]
        return found


def condition_of(state: object) -> str | None:
    """The error in a rejected outcome, provisional or not; None for any other one."""
    outcome = state.outcome if isinstance(state, TransactionalState) else state
    if isinstance(outcome, Rejected):
        assert outcome.error is not None, "rejected without an error"
        return outcome.error.condition
    return None


def _body(payload: bytes) -> bytes:
    return bytes(Message(payload).body_sections()[0].value)


def snapshot(
    broker: Broker,
) -> tuple[dict[str, QueueSeen], dict[str, ConnectionSeen], set[bytes], int]:
    """What the broker counts of queues and connections; its live transactions; how many link names it has."""
    queues = {
        name: QueueSeen(
            queue.message_count,
            queue.byte_count,
            queue._volatile_bytes,
            queue.backlog.available(),
            (queue.reserved_messages, queue.reserved_bytes),
            len(queue._in_sight),
            queue.pending_posts,
        )
        for name, queue in broker.nodes.queues._queues.items()
    }
    connections = {task.connection.container_id: _connection_seen(task) for task in broker._connections}
    live = {each.txn_id for each in broker.transactions()}
    return queues, connections, live, len(broker.nodes.link_names._attached)


def _connection_seen(task: Any) -> ConnectionSeen:
    transactions = task.transactions
    table = transactions._table
    waiting = []
    consumers = {}
    for link in task.connection.links:
        consumer = link.context
        if not isinstance(consumer, Consumer):
            continue
        if not consumer.browser:  # what it settles may be on its way
            consumers[link.name] = (link.unsettled_count, consumer in table._acquiring)
        if consumer.pending or link.sending:
            waiting.append(f"{link.name}: {consumer.pending}, {link.sending}")
    if transactions.aborting or task.connection.mail:
        waiting.append(f"answers {transactions.aborting}, mail {task.connection.mail}")
    if len(table._acquiring) != sum(acquiring for _, acquiring in consumers.values()):
        waiting.append("links that are gone acquire")
    return ConnectionSeen(
        {each.txn_id for each in table.live()}, set(table._aborted), len(table._held), consumers, waiting
    )

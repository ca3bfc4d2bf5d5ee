"""The controller's side of transactions: control links, and the work between declare and discharge (part 4).

control = Controller(broker)
txn = control.declare()
post(sender, txn, b"the message")
control.commit(txn)
"""

from typing import Any, TypeVar

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Peer, Receiver, Sender, Session
from amqp_broker.conformance.messages import AMQP_VALUE, data
from amqp_broker.conformance.octets import described
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, error_of, expect_state
from amqp_broker.conformance.queues import expect_left, put, reader
from amqp_broker.conformance.transcript import describe, describe_value
from amqp_broker.frames import (
    Accepted,
    Attach,
    Close,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    End,
    Error,
    Properties,
    Rejected,
    Source,
    TransactionalState,
    Transfer,
    encode_composite,
)
from amqp_broker.testing.peer import Delivery

T = TypeVar("T")

LOCAL = "amqp:local-transactions"
MULTI_TXNS = "amqp:multi-txns-per-ssn"
MULTI_SSNS = "amqp:multi-ssns-per-txn"
DISTRIBUTED = "amqp:distributed-transactions"

UNKNOWN_ID = "amqp:transaction:unknown-id"
ROLLBACK = "amqp:transaction:rollback"
TIMEOUT = "amqp:transaction:timeout"
TOO_MUCH = "amqp:resource-limit-exceeded"

EVERY_OUTCOME = (
    "amqp:accepted:list",
    "amqp:rejected:list",
    "amqp:released:list",
    "amqp:modified:list",
)

NEVER_DECLARED = b"never declared.."
"""A txn-id that no broker has given to anybody."""

def within(txn_id: bytes, outcome: Any = None) -> TransactionalState:
    """Returns the state of a transfer, or of an outcome, in a transaction (4.5.6)."""
    return TransactionalState(txn_id=txn_id, outcome=outcome)


def request(value: Any) -> bytes:
    """Returns the message to a coordinator: one amqp-value section that holds declare or discharge (4.2)."""
    return described(AMQP_VALUE, encode_composite(value))


class Controller:
    """A control link to the broker's coordinator, on a session of its own unless one is given."""

    def __init__(
        self,
        broker: Broker,
        session: Session | None = None,
        *,
        handle: int = 100,
        name: str = "control",
        needs: tuple[str, ...] = (),
        outcomes: tuple[str, ...] | None = EVERY_OUTCOME,
        **fields: Any,
    ) -> None:
        """Attaches the link; the scenario is not applicable where there is no coordinator, or not with
        ``needs``.
        """
        broker.require_coordinator(*needs)
        self.broker = broker
        self.session = session or broker.session()
        self.peer = self.session.peer
        usual = {"source": Source(outcomes=outcomes), "target": Coordinator(capabilities=(LOCAL,))}
        self.link = self.session.sender(None, handle, name, **{**usual, **fields})

    @property
    def attach(self) -> Attach:
        """The broker's attach of the control link."""
        return self.link.attach

    def ask(self, value: Any, **fields: Any) -> int:
        """Sends a declare or discharge and returns its delivery-id; ``fields`` change the transfer."""
        return self.link.send(request(value), **fields)

    def answer(self, delivery_id: int, skip: tuple[type, ...] = ()) -> Any:
        """Waits for the settled outcome of a request and returns it."""
        return self.session.await_settled(delivery_id, skip)

    def declare(self) -> bytes:
        """Declares a transaction and returns its txn-id."""
        return expect_state(self.answer(self.ask(Declare())), Declared).txn_id

    def discharge(self, txn_id: bytes, fail: bool | None, skip: tuple[type, ...] = ()) -> None:
        """Ends a transaction; raises Unexpected unless the broker accepts it."""
        expect_state(self.answer(self.ask(Discharge(txn_id=txn_id, fail=fail)), skip), Accepted)

    def commit(self, txn_id: bytes, skip: tuple[type, ...] = ()) -> None:
        """Ends a transaction successfully."""
        self.discharge(txn_id, False, skip)

    def roll_back(self, txn_id: bytes, skip: tuple[type, ...] = ()) -> None:
        """Ends a transaction with the fail flag."""
        self.discharge(txn_id, True, skip)

    def expect_rejected(self, delivery_id: int, *conditions: str) -> Error:
        """Waits until a request is rejected with an error of one of ``conditions`` (none: any) (4.2, 4.3)."""
        return error_of(expect_state(self.answer(delivery_id), Rejected), *conditions)

    def refused(self, value: Any, *conditions: str) -> None:
        """Asks for what must be rejected with an error of one of ``conditions`` (none: any)."""
        self.expect_rejected(self.ask(value), *conditions)


def expect_some_error(peer: Peer) -> None:
    """Waits for a refusal in any form: rejected (provisionally, too), detach, end or close with an error."""
    answer = peer.expect_frame(Disposition, Detach, End, Close).performative
    if isinstance(answer, Disposition):
        state = answer.state
        error_of(expect_state(state.outcome if isinstance(state, TransactionalState) else state, Rejected))
    else:
        error_of(answer)


def post(sender: Sender, txn_id: bytes, *bodies: bytes, settled: bool = False, **fields: Any) -> list[int]:
    """Posts messages in a transaction and returns their delivery-ids; nothing is waited for but credit."""
    state = within(txn_id)
    return [sender.send(data(body), state=state, settled=settled, **fields) for body in bodies]


def expect_provisional(sender: Sender, delivery_id: int, txn_id: bytes, kind: type[T]) -> T:
    """Waits for the provisional outcome of a post, in its transaction, and returns it (4.4.1)."""
    sender.session.await_outcome(delivery_id)
    return provisional(sender.session, delivery_id, txn_id, kind)


def provisional(session: Session, delivery_id: int, txn_id: bytes, kind: type[T]) -> T:
    """Returns the provisional outcome of a post, which has come."""
    disposition = session.outcomes.get(delivery_id)
    if disposition is None:
        raise Unexpected(f"4.4.1-04: delivery {delivery_id} has got no provisional outcome")
    state = expect_state(disposition.state, TransactionalState)
    if state.txn_id != txn_id:
        raise Unexpected(f"4.4.4.1-03: expected the txn-id {txn_id.hex()}, got {describe(disposition)}")
    return expect_state(state.outcome, kind)


def anonymous_sender(session: Session, handle: int = 0) -> Sender:
    """Returns a link on which each message names its node; not applicable where the broker refuses one."""
    sender = session.put_sender(None, handle, f"anonymous-{handle}")
    try:
        sender.expect_attach()
    except Unexpected as refused:
        if sender.remote_attach is None:
            raise
        raise NotApplicable(f"the broker has no anonymous terminus: {refused}") from refused
    return sender


def elsewhere(address: str, body: bytes = b"elsewhere") -> bytes:
    """Returns a message that names its node, for an anonymous terminus."""
    return encode_composite(Properties(to=address)) + data(body)


def fill(sender: Sender, address: str, txn_id: bytes) -> int:
    """Posts through the anonymous terminus, whose credit is not the queue's, until a message is refused;
    returns how many the queue took. Not applicable where it takes fifty.
    """
    for count in range(50):
        number = sender.send(elsewhere(address, b"%d" % count), state=within(txn_id), wait=False)
        outcome = getattr(sender.session.await_outcome(number).state, "outcome", None)
        if isinstance(outcome, Rejected):
            error_of(outcome, TOO_MUCH)
            return count
    raise NotApplicable("the queue took 50 messages: there is no bound for it")


def acquire(receiver: Receiver, txn_id: bytes, credit: int, **fields: Any) -> None:
    """Gives credit, and says that what it acquires belongs to a transaction (4.4.3)."""
    receiver.flow(credit, txn_id=txn_id, **fields)


def receive_in(receiver: Receiver, txn_id: bytes | None, skip: tuple[type, ...] = ()) -> Delivery:
    """Returns the next delivery, whose transfer must name this transaction (None: no transaction)."""
    delivery = receiver.receive(skip=skip)
    state = delivery.transfer.state
    named = state.txn_id if isinstance(state, TransactionalState) else None
    if named != txn_id:
        wanted = "no transaction" if txn_id is None else f"the txn-id {txn_id.hex()}"
        raise Unexpected(
            f"4.4-01: expected a transfer that names {wanted}, got {describe(delivery.transfer)}"
        )
    return delivery


def copying(broker: Broker, address: str) -> Receiver:
    """Returns somebody else's link that copies; not applicable where the broker offers none (3.5.2)."""
    receiver = reader(broker, address, source=Source(address=address, distribution_mode="copy"))
    source = receiver.attach.source
    if getattr(source, "distribution_mode", None) != "copy":
        raise NotApplicable("the broker offers no copying links")
    return receiver


def require_acquisition(broker: Broker) -> None:
    """Ends the scenario as not applicable where links do not acquire in transactions (4.4.3)."""
    put(broker, broker.queue("asks"), b"asks")
    control = Controller(broker, broker.session(container="asks"), name="asks")
    receiver = control.session.receiver(broker.queue("asks"))
    txn = control.declare()
    acquire(receiver, txn, 1)
    answer = control.peer.expect_frame(Transfer, Detach).performative
    if isinstance(answer, Detach):
        raise NotApplicable(f"links do not acquire in transactions: {describe_value(answer.error)}")
    if answer.state != within(txn):
        raise NotApplicable("flows may name a transaction, but are not heard (see 4.4.3/supported)")
    control.peer.close()


class _Retiring:
    """A control link, and deliveries of a receiver on its session that a transaction may retire."""

    broker: Broker
    control: Controller
    receiver: Receiver
    deliveries: list[Delivery]
    txn: bytes

    def retire(
        self, outcome: Any, number: int = 0, *, settled: bool = False, txn: bytes | None = None
    ) -> None:
        """Gives one delivery its outcome in the transaction."""
        state = within(self.txn if txn is None else txn, outcome)
        self.receiver.settle(self.deliveries[number], state, settled=settled)

    def left(self, *bodies: bytes) -> list[Delivery]:
        """Closes the connection; returns what is at the queue then, which must be these messages."""
        self.control.peer.close()
        return expect_left(self.broker, self.broker.queue(), *bodies)


class Delivered(_Retiring):
    """A control link, and a receiver on its session with so many unsettled deliveries "0", "1", ..."""

    def __init__(self, broker: Broker, count: int = 1, **fields: Any) -> None:
        self.broker = broker
        put(broker, broker.queue(), *(b"%d" % number for number in range(count)))
        self.control = Controller(broker)
        self.receiver = self.control.session.receiver(broker.queue(), credit=count, **fields)
        self.deliveries = self.receiver.take(count)
        self.txn = self.control.declare()


class Acquired(_Retiring):
    """A control link, and a receiver that has acquired so many messages "0", "1", ... in a transaction."""

    def __init__(self, broker: Broker, count: int = 1, messages: int | None = None, **fields: Any) -> None:
        require_acquisition(broker)
        self.broker = broker
        put(broker, broker.queue(), *(b"%d" % number for number in range(messages or count)))
        self.control = Controller(broker)
        self.receiver = self.control.session.receiver(broker.queue(), **fields)
        self.txn = self.control.declare()
        acquire(self.receiver, self.txn, count)
        self.deliveries = [receive_in(self.receiver, self.txn) for _ in range(count)]

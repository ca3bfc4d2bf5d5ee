"""How a discharge ended whose answer was lost: this project's node `$transactions` (4.3)."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver, Sender
from amqp_broker.conformance.messages import data, properties_of
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.queues import expect_left
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import Controller, error_of, post
from amqp_broker.frames import Discharge, Properties, Rejected, encode_composite

ADDRESS = "$transactions"

COMMITTED, LIVE, PENDING, NOT_COMMITTED = "committed", "live", "pending", "not-committed"


class _Asks:
    """A connection that asks how transactions ended: a plain client, without any transaction of its own."""

    def __init__(self, broker: Broker, container: str = "asks") -> None:
        broker.require_coordinator()
        session = broker.session(container=container)
        self.reply_to = broker.queue(f"replies-to-{container}")
        self.replies: Receiver = session.receiver(self.reply_to, credit=100)
        self.sender: Sender = session.put_sender(ADDRESS, name="questions")
        try:
            self.sender.expect_attach()
        except Unexpected as refused:
            if self.sender.remote_attach is None:
                raise
            raise NotApplicable(f"the broker has no node {ADDRESS}") from refused

    def ask(self, correlation_id: object) -> str:
        """Returns the answer about one txn-id."""
        question = Properties(correlation_id=correlation_id, reply_to=self.reply_to)
        self.sender.send(encode_composite(question) + data(b""), settled=True)
        delivery = self.replies.receive()
        self.replies.settle(delivery)
        properties = properties_of(delivery.payload)
        if properties is None or properties.correlation_id != correlation_id:
            raise Unexpected(f"expected an answer about {correlation_id!r}, got {properties!r}")
        return str(properties.subject)

    def expect(self, correlation_id: object, *words: str) -> None:
        """Raises Unexpected unless the answer is one of ``words``."""
        word = self.ask(correlation_id)
        if word not in words:
            raise Unexpected(f"expected {' or '.join(words)} for {correlation_id!r}, got {word!r}")


@scenario("4.3/asked-afterwards", "4.3-discharge", "4.5.3-fail", profile="full")
def asked_afterwards(broker: Broker) -> None:
    """Somebody else asks: a transaction is live, then committed or not, as it was discharged."""
    asks = _Asks(broker)
    control = Controller(broker)
    for fail, word in ((False, COMMITTED), (True, NOT_COMMITTED)):
        txn = control.declare()
        asks.expect(txn, LIVE)
        control.discharge(txn, fail)
        asks.expect(txn, word)
        asks.expect(txn.hex(), word)
        control.refused(Discharge(txn_id=txn, fail=False))
        asks.expect(txn, word)
    asks.expect(b"never declared..", NOT_COMMITTED)


@scenario("4.3/asked-after-the-end", "4.1-closed", "4.3-discharge", profile="full")
def asked_after_the_end(broker: Broker) -> None:
    """A transaction that ended with its control link or connection is not committed."""
    asks = _Asks(broker)
    control = Controller(broker)
    first, second = control.declare(), control.declare()
    post(control.session.sender(broker.queue()), first, b"never", settled=True)
    control.link.detach()
    asks.expect(first, NOT_COMMITTED)
    control = Controller(broker, control.session)
    third = control.declare()
    control.peer.close()
    asks.expect(second, NOT_COMMITTED)
    asks.expect(third, NOT_COMMITTED)


@scenario("4.3/lost-answer", "4.3-discharge", "4.1-closed", profile="full")
def lost_answer(broker: Broker) -> None:
    """The connection breaks right after the discharge: the answer to the question is what really happened."""
    asks = _Asks(broker)
    for number in range(10):
        control = Controller(broker, broker.session(container=f"lost-{number}"))
        address = broker.queue(f"q-{number}")
        sender = control.session.sender(address)
        txn = control.declare()
        sender.await_credit()
        control.link.await_credit()
        with control.peer.one_write():
            post(sender, txn, b"there or not", settled=True, wait=False)
            control.ask(Discharge(txn_id=txn, fail=number == 9), wait=False)
        control.peer.drop()
        word = asks.ask(txn)
        while word in (LIVE, PENDING):
            word = asks.ask(txn)
        if word not in (COMMITTED, NOT_COMMITTED) or (number == 9 and word == COMMITTED):
            raise Unexpected(f"expected a final answer, got {word!r}")
        expect_left(broker, address, *([b"there or not"] if word == COMMITTED else []))


@scenario("4.3/question-refused", "4.5.4-length", profile="full")
def question_refused(broker: Broker) -> None:
    """A question that cannot be answered is rejected: no id, one that is none, nobody to reply to."""
    asks = _Asks(broker)
    for properties in (
        Properties(reply_to=asks.reply_to),
        Properties(correlation_id=b"", reply_to=asks.reply_to),
        Properties(correlation_id=b"x" * 33, reply_to=asks.reply_to),
        Properties(correlation_id="no digits", reply_to=asks.reply_to),
        Properties(correlation_id=b"x" * 16),
        Properties(correlation_id=b"x" * 16, reply_to=broker.settings.unknown_address),
    ):
        asks.sender.send(encode_composite(properties) + data(b""))
        error_of(asks.sender.expect_outcome(Rejected))
    asks.expect(b"x" * 16, NOT_COMMITTED)

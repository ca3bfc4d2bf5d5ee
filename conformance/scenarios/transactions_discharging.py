"""Discharges: what ends a transaction, who may, what is answered when, and whom one asks whose answer was
lost (this project's node `$transactions`) (4.3).
"""

import time

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver, Sender, Session
from amqp_broker.conformance.messages import data, properties_of
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, error_of, expect
from amqp_broker.conformance.queues import expect_left, put, reader
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import (
    MULTI_TXNS,
    NEVER_DECLARED,
    ROLLBACK,
    TIMEOUT,
    UNKNOWN_ID,
    Controller,
    Delivered,
    acquire,
    anonymous_sender,
    elsewhere,
    post,
    receive_in,
    require_acquisition,
    within,
)
from amqp_broker.conformance.transcript import describe
from amqp_broker.frames import (
    Accepted,
    Detach,
    Discharge,
    Disposition,
    Properties,
    Rejected,
    Released,
    encode_composite,
)

LASTS_AT_MOST_S = 6.5
"""How long we wait for a transaction to time out; a broker may let it live for much longer."""


@scenario("4.3/fail-not-set", "4.3-fail", "4.5.3-fail", "4.3-discharge")
def fail_not_set(broker: Broker, control: Controller) -> None:
    """A discharge whose fail flag is not set commits: what was posted is there."""
    txn = control.declare()
    post(control.session.sender(broker.queue()), txn, b"there")
    control.discharge(txn, None)
    expect_left(broker, broker.queue(), b"there")


@scenario("4.3/over", "4.5.3-discharge", "4.5.8-unknown-id", "4.3-01", "4.3-02")
def over(control: Controller) -> None:
    """A txn-id is no longer in use after its discharge: a second one is rejected with unknown-id."""
    for fail in (False, True):
        txn = control.declare()
        control.discharge(txn, fail)
        control.refused(Discharge(txn_id=txn, fail=False), UNKNOWN_ID)
    control.commit(control.declare())


@scenario("4.3/unknown-id", "4.5.8-unknown-id", "4.3-01", "4.3-02")
def unknown_id(control: Controller) -> None:
    """A discharge of an id that was never declared is rejected with unknown-id; the link works on."""
    control.refused(Discharge(txn_id=NEVER_DECLARED, fail=False), UNKNOWN_ID)
    control.commit(control.declare())


@scenario("4.3/unknown-id-without-rejected", "4.3-03", "4.5.8-unknown-id")
def unknown_id_without_rejected(broker: Broker) -> None:
    """Where the source does not offer rejected, the error of a discharge comes in a detach."""
    control = Controller(broker, outcomes=("amqp:accepted:list",))
    control.ask(Discharge(txn_id=NEVER_DECLARED, fail=False))
    control.link.expect_detach(UNKNOWN_ID)
    control.session.catch_up()
    control.peer.close()


@scenario("4.3/unknown-id-with-fail", "4.5.8-unknown-id", "4.3-02", profile="full")
def unknown_id_with_fail(control: Controller) -> None:
    """Also with the fail flag an unknown id is rejected: there is nothing that could be rolled back."""
    control.refused(Discharge(txn_id=NEVER_DECLARED, fail=True), UNKNOWN_ID)
    txn = control.declare()
    control.commit(txn)
    control.refused(Discharge(txn_id=txn, fail=True), UNKNOWN_ID)


@scenario("4.3/fail-always", "4.3-04", "4.3-fail", "4.5.3-fail")
def fail_always(broker: Broker, control: Controller) -> None:
    """A discharge with the fail flag is accepted, whatever was done in the transaction, or nothing."""
    control.roll_back(control.declare())
    put(broker, broker.queue("in"), b"1", b"2")
    receiver = control.session.receiver(broker.queue("in"))
    sender = control.session.sender(broker.queue("out"))
    for settled in (False, True):
        receiver.flow(1)
        delivery = receiver.receive(skip=(Disposition,))
        txn = control.declare()
        post(sender, txn, b"unsettled")
        post(sender, txn, b"settled", settled=True)
        receiver.settle(delivery, within(txn, Accepted()), settled=settled)
        control.roll_back(txn)
    control.peer.close()
    expect_left(broker, broker.queue("out"))


@scenario("4.3/fail-of-what-cannot-commit", "4.3-04", "4.4.4.1-01")
def fail_of_what_cannot_commit(broker: Broker, control: Controller) -> None:
    """A transaction that cannot commit, since a settled message went nowhere, can be rolled back."""
    txn = control.declare()
    sender = anonymous_sender(control.session)
    sender.send(elsewhere(broker.settings.unknown_address), state=within(txn), settled=True)
    control.ask(Discharge(txn_id=txn, fail=True))
    answer = control.peer.expect_frame(Disposition, Detach).performative
    if isinstance(answer, Detach):
        return  # 4.4.4 lets a broker destroy the control link at once instead.
    expect(isinstance(answer.state, Accepted), f"4.3-04: expected accepted, got {describe(answer)}")


@scenario("4.3/settled-discharge", "4.3-settled", "4.1-closed", "4.4.4.2-01", breaks="4.2-03")
def settled_discharge(broker: Broker, work: Delivered) -> None:
    """A discharge that is sent settled: the control link is detached with an error, and all rolled back."""
    post(work.control.session.sender(broker.queue("out")), work.txn, b"never")
    work.retire(Accepted(), settled=True)
    work.control.ask(Discharge(txn_id=work.txn, fail=False), settled=True)
    work.control.link.expect_detach()
    expect_left(broker, broker.queue("out"))
    expect_left(broker, broker.queue(), b"0")


@scenario("4.3/foreign-connection", "4.5.8-unknown-id", "4.3-01")
def foreign_connection(broker: Broker, control: Controller) -> None:
    """A discharge of another connection's transaction is rejected; its own controller commits it."""
    txn = control.declare()
    post(control.session.sender(broker.queue()), txn, b"its own")
    stranger = Controller(broker, broker.session(container="stranger"))
    stranger.refused(Discharge(txn_id=txn, fail=False))
    stranger.refused(Discharge(txn_id=txn, fail=True))
    control.commit(txn)
    expect_left(broker, broker.queue(), b"its own")


@scenario("4.3/another-control-link", "4.5.8-unknown-id", "4.3-02", profile="full")
def another_control_link(broker: Broker, control: Controller) -> None:
    """A discharge through another control link of the session is unknown-id; its own link commits it."""
    other = Controller(broker, control.session, handle=101, name="another")
    txn = control.declare()
    post(control.session.sender(broker.queue()), txn, b"its own")
    other.refused(Discharge(txn_id=txn, fail=False), UNKNOWN_ID)
    other.refused(Discharge(txn_id=txn, fail=True), UNKNOWN_ID)
    control.commit(txn)
    expect_left(broker, broker.queue(), b"its own")


def _position(session: Session, performative: object) -> int:
    """Returns where a performative stands in what the broker sent on a session."""
    return next(index for index, seen in enumerate(session.seen) if seen is performative)


@scenario("4.3/provisional-first", "4.4.4.1-02", "4.4.1-04", "4.4.1-05", "4.4.1-informs")
def provisional_first(broker: Broker, control: Controller) -> None:
    """All in one write: the provisional outcome of each post comes before the discharge is accepted."""
    sender = control.session.sender(broker.queue())
    txn = control.declare()
    sender.await_credit(5)
    control.link.await_credit()
    with control.peer.one_write():
        posts = post(sender, txn, *(b"%d" % number for number in range(5)), wait=False)
        discharge = control.ask(Discharge(txn_id=txn, fail=False), wait=False)
    control.answer(discharge)
    end = _position(control.session, control.session.outcomes[discharge])
    for number in posts:
        disposition = control.session.outcomes.get(number)
        if disposition is None or _position(control.session, disposition) > end:
            raise Unexpected(f"4.4.4.1-02: delivery {number} had no outcome when the discharge was accepted")


@scenario("4.3/settlements-first", "4.4.2-applied", "4.4-01", profile="full")
def settlements_first(broker: Broker) -> None:
    """The broker settles what the transaction retired, in its name, and accepts the discharge after it."""
    put(broker, broker.queue(), b"1", b"2", b"3")
    control = Controller(broker)
    session = control.session
    receiver = session.receiver(broker.queue(), credit=3)
    deliveries = receiver.take(3)
    for outcome in (Accepted(), Rejected(), Released()):
        txn = control.declare()
        delivery = deliveries.pop(0)
        receiver.settle(delivery, within(txn, outcome), settled=False)
        discharge = control.ask(Discharge(txn_id=txn, fail=False))
        control.answer(discharge)
        settlement = session.settlements.get(delivery.delivery_id)
        if settlement is None or not settlement.settled or settlement.state != within(txn, outcome):
            said = "nothing" if settlement is None else describe(settlement)
            raise Unexpected(f"expected {delivery.delivery_id} settled in the transaction, got {said}")
        if _position(session, settlement) > _position(session, session.outcomes[discharge]):
            raise Unexpected("the discharge was accepted before what it retired was settled")


@scenario("4.3/interleaved", "4.5.7-multi-txns", "4.4-requests")
def interleaved(broker: Broker) -> None:
    """Two transactions post in turn over one link; one commits, one is rolled back."""
    control = Controller(broker, needs=(MULTI_TXNS,))
    sender = control.session.sender(broker.queue())
    good, bad = control.declare(), control.declare()
    sender.await_credit(6)
    with control.peer.one_write():
        for number in range(3):
            post(sender, good, b"good %d" % number, wait=False)
            post(sender, bad, b"bad %d" % number, wait=False)
    control.roll_back(bad)
    control.commit(good)
    expect_left(broker, broker.queue(), b"good 0", b"good 1", b"good 2")


@scenario("4.3/transform", "4.1-distinct-links", "4.4-state", "4.4.2-applied", "4.4.1-not-available")
def transform(broker: Broker) -> None:
    """Five times consume, post elsewhere and commit: one queue is empty, the other has all of it."""
    bodies = [b"%d" % number for number in range(5)]
    put(broker, broker.queue("in"), *bodies)
    control = Controller(broker)
    receiver = control.session.receiver(broker.queue("in"))
    sender = control.session.sender(broker.queue("out"))
    for number in range(5):
        receiver.flow(1)
        delivery = receiver.receive(skip=(Disposition,))
        txn = control.declare()
        post(sender, txn, b"%d" % number)
        receiver.settle(delivery, within(txn, Accepted()), settled=number % 2 == 0)
        control.commit(txn)
    control.peer.close()
    expect_left(broker, broker.queue("in"))
    expect_left(broker, broker.queue("out"), *bodies)


def _timed_out(control: Controller, waiting: Receiver) -> None:
    """Waits until what the transaction has acquired comes to somebody else; keeps connections alive."""
    end = time.monotonic() + LASTS_AT_MOST_S
    while not waiting.deliveries:
        if time.monotonic() > end:
            raise NotApplicable(f"no transaction has timed out within {LASTS_AT_MOST_S:g} s")
        control.peer.send_empty_frame()
        waiting.peer.send_empty_frame()
        if waiting.peer.has_more(0.5):
            waiting.receive()


@scenario("4.5.8/timeout", "4.5.8-timeout", "4.3-02", profile="full", waits=True)
def timeout(broker: Broker) -> None:
    """A transaction that lasts too long is rolled back at once, and its discharge answers timeout."""
    require_acquisition(broker)
    put(broker, broker.queue("in"), b"mine")
    control = Controller(broker)
    sender = control.session.sender(broker.queue())
    late, txn = control.declare(), control.declare()
    post(sender, txn, b"never")
    receiver = control.session.receiver(broker.queue("in"))
    acquire(receiver, txn, 1)
    receive_in(receiver, txn, skip=(Disposition,))
    freed = reader(broker, broker.queue("in"), 1)
    _timed_out(control, freed)
    control.refused(Discharge(txn_id=txn, fail=False), TIMEOUT)
    control.refused(Discharge(txn_id=txn, fail=False), UNKNOWN_ID)
    sender.send(data(b"too late"), state=within(late))
    detach = control.peer.expect(Detach, skip=(Disposition,))
    error_of(detach, TIMEOUT)
    control.commit(control.declare())
    freed.peer.close()
    expect_left(broker, broker.queue())


@scenario("4.4.4/settled-goes-nowhere", "4.4.4.1-01", "4.4.4.1-communicated", "4.5.8-rollback")
def settled_goes_nowhere(broker: Broker, control: Controller) -> None:
    """A settled message that cannot be posted: the transaction cannot commit, nothing of it is there."""
    good, sender = control.session.sender(broker.queue()), anonymous_sender(control.session, handle=2)
    sender.send(elsewhere(broker.settings.unknown_address))
    if isinstance(control.peer.expect_frame(Disposition, Detach).performative.state, Accepted):
        raise NotApplicable("the broker takes a message for every address")
    txn = control.declare()
    post(good, txn, b"never")
    sender.send(elsewhere(broker.settings.unknown_address), state=within(txn), settled=True)
    discharge = control.ask(Discharge(txn_id=txn, fail=False))
    answer = None
    while answer is None:
        got = control.peer.expect_frame(Disposition, Detach).performative
        if isinstance(got, Detach) or discharge in control.session.outcomes:
            answer = got
    error = answer.error if isinstance(answer, Detach) else getattr(answer.state, "error", None)
    if error is None or error.condition != ROLLBACK:
        raise Unexpected(f"expected {ROLLBACK} as rejected or detach, got {describe(answer)}")
    expect_left(broker, broker.queue())


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
        expect(word in words, f"expected {' or '.join(words)} for {correlation_id!r}, got {word!r}")


@scenario("4.3/asked-afterwards", "4.3-discharge", "4.5.3-fail", profile="full")
def asked_afterwards(asks: _Asks, control: Controller) -> None:
    """Somebody else asks: a transaction is live, then committed or not, as it was discharged."""
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
def asked_after_the_end(broker: Broker, asks: _Asks, control: Controller) -> None:
    """A transaction that ended with its control link or connection is not committed."""
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
def lost_answer(broker: Broker, asks: _Asks) -> None:
    """The connection breaks right after the discharge: the answer to the question is what really happened."""
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
def question_refused(broker: Broker, asks: _Asks) -> None:
    """A question that cannot be answered is rejected: no id, one that is none, nobody to reply to."""
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

"""Posting: what is sent in a transaction, when it is there, and what cannot be posted (4.4.1)."""

import time

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Sender
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.outcomes import Unexpected, error_of, expect, expect_state
from amqp_broker.conformance.queues import body_of, expect_left, put, reader
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import (
    MULTI_SSNS,
    NEVER_DECLARED,
    ROLLBACK,
    TOO_MUCH,
    UNKNOWN_ID,
    Controller,
    anonymous_sender,
    copying,
    elsewhere,
    expect_provisional,
    expect_some_error,
    fill,
    post,
    provisional,
    within,
)
from amqp_broker.conformance.transcript import describe
from amqp_broker.frames import (
    Accepted,
    Discharge,
    Header,
    Rejected,
    Released,
    Transfer,
    encode_composite,
)

HALF, REST = data(b"half of it")[:6], data(b"half of it")[6:]
"""A message in two parts."""


def _begun(broker: Broker, name: str = "q") -> tuple[Controller, Sender, bytes]:
    """Returns a control link, a link to this scenario's queue, and a declared transaction."""
    control = Controller(broker)
    return control, control.session.sender(broker.queue(name)), control.declare()


@scenario("4.4.1/commit", "4.4.1-not-available", "4.4-state", "4.4-requests", "4.1-any-link")
def commit(broker: Broker) -> None:
    """What is posted unsettled is not there before the discharge, and is there after it."""
    control, sender, txn = _begun(broker)
    waiting = reader(broker, broker.queue(), 10)
    post(sender, txn, b"1", b"2", b"3")
    control.session.catch_up()
    waiting.peer.expect_nothing(Transfer)
    control.commit(txn)
    got = [body_of(waiting.receive()) for _ in range(3)]
    expect(sorted(got) == [b"1", b"2", b"3"], f"expected 1 2 3, got {got}")


@scenario("4.4.1/rollback", "4.4.4.1-discarded", "4.4.1-not-available", "4.3-fail")
def rollback(broker: Broker) -> None:
    """What was posted unsettled is not there after a rollback; the link can be used for more."""
    control, sender, txn = _begun(broker)
    post(sender, txn, b"1", b"2")
    control.roll_back(txn)
    expect_left(broker, broker.queue())
    again = control.declare()
    post(sender, again, b"1", b"2")
    control.commit(again)
    expect_left(broker, broker.queue(), b"1", b"2")


@scenario("4.4.1/settled-commit", "4.4.4.1-settled-post")
def settled_commit(broker: Broker) -> None:
    """What is posted settled is not there before the discharge, and is there after it."""
    control, sender, txn = _begun(broker)
    post(sender, txn, b"1", b"2", settled=True)
    control.session.catch_up()
    expect_left(broker, broker.queue())
    control.commit(txn)
    expect_left(broker, broker.queue(), b"1", b"2")


@scenario("4.4.1/settled-rollback", "4.4.4.1-settled-discarded")
def settled_rollback(broker: Broker) -> None:
    """What was posted settled is not there after a rollback."""
    control, sender, txn = _begun(broker)
    post(sender, txn, b"1", b"2", settled=True)
    control.roll_back(txn)
    expect_left(broker, broker.queue())


@scenario("4.4.1/provisional", "4.4.1-05", "4.4.4.1-03", "4.4-01", "4.5.6-outcome", "4.5.6-state")
def provisional_outcome(broker: Broker) -> None:
    """Each unsettled post has got accepted, in its own transaction, by the time of its discharge."""
    control, sender, txn = _begun(broker)
    posts = post(sender, txn, b"1", b"2", b"3")
    control.commit(txn)
    for number in posts:
        provisional(control.session, number, txn, Accepted)
    other = control.declare()
    (number,) = post(sender, other, b"4")
    control.commit(other)
    provisional(control.session, number, other, Accepted)


@scenario("4.4.1/provisional-at-once", "4.4.1-04", "4.4.1-informs", profile="full")
def provisional_at_once(broker: Broker) -> None:
    """The provisional outcome of a post comes, and settles it, before a discharge is sent."""
    control, sender, txn = _begun(broker)
    for body in (b"1", b"2"):
        (number,) = post(sender, txn, body)
        expect_provisional(sender, number, txn, Accepted)
        if not control.session.outcomes[number].settled:
            raise Unexpected(f"expected it settled, got {describe(control.session.outcomes[number])}")


@scenario("4.4.1/in-order", "4.4.1-not-available", profile="full")
def in_order(broker: Broker) -> None:
    """Messages stand in the order of their posts, and transactions in the order of their commits."""
    control, sender, first = _begun(broker)
    second = control.declare()
    for number in range(3):
        post(sender, first, b"first %d" % number)
        post(sender, second, b"second %d" % number, settled=True)
    control.commit(second)
    put(broker, broker.queue(), b"plain")
    control.commit(first)
    order = [b"second %d" % number for number in range(3)] + [b"plain"]
    order += [b"first %d" % number for number in range(3)]
    expect_left(broker, broker.queue(), *order, in_order=True)


@scenario("4.4.1/plain-beside", "4.4-01", "4.4-state")
def plain_beside(broker: Broker) -> None:
    """A message that names no transaction is none of its work: it is there at once, on the same link."""
    control, sender, txn = _begun(broker)
    post(sender, txn, b"in it")
    plain = sender.send(data(b"plain"))
    control.session.await_outcome(plain)
    expect_state(control.session.outcomes[plain].state, Accepted)
    expect_left(broker, broker.queue(), b"plain")
    control.roll_back(txn)
    expect_left(broker, broker.queue(), b"plain")


@scenario("4.4.1/several-queues", "4.1-distinct-links", "4.4.1-not-available")
def several_queues(broker: Broker, control: Controller) -> None:
    """One discharge makes all available that was posted on several links to several queues, or nothing."""
    links = [
        control.session.sender(broker.queue(name), handle=handle, name=f"sender-{handle}")
        for handle, name in enumerate(("one", "one", "two", "three"))
    ]
    for fail in (True, False):
        txn = control.declare()
        for number, sender in enumerate(links):
            post(sender, txn, b"%d" % number, settled=number == 1)
        control.discharge(txn, fail)
    expect_left(broker, broker.queue("one"), b"0", b"1")
    expect_left(broker, broker.queue("two"), b"2")
    expect_left(broker, broker.queue("three"), b"3")


@scenario("4.4.1/several-sessions", "4.5.7-multi-ssns", "4.1-any-link", "4.1-distinct-links")
def several_sessions(broker: Broker) -> None:
    """A transaction takes posts on every session of its connection."""
    control = Controller(broker, needs=(MULTI_SSNS,))
    txn = control.declare()
    for channel in (1, 2):
        session = control.peer.begin(channel)
        sender = session.sender(broker.queue(), name=f"on-session-{channel}")
        post(sender, txn, b"on session %d" % channel)
        session.catch_up()
    post(control.session.sender(broker.queue()), txn, b"on its own")
    expect_left(broker, broker.queue())
    control.commit(txn)
    expect_left(broker, broker.queue(), b"on its own", b"on session 1", b"on session 2")


@scenario("4.4.1/several-frames", "4.4.1-02", "4.4.1-not-available")
def several_frames(broker: Broker) -> None:
    """A message over many transfers, each of which names the transaction, is posted as a whole."""
    control, sender, txn = _begun(broker)
    body = bytes(range(256)) * 20
    number = sender.send(data(body), state=within(txn), frame_octets=512)
    sender.send(data(body[:1000]), state=within(txn), settled=True, frame_octets=512)
    control.commit(txn)
    provisional(control.session, number, txn, Accepted)
    expect_left(broker, broker.queue(), body, body[:1000])


@scenario("4.4.1/frames-of-two", "4.4.1-02", profile="full")
def frames_of_two(broker: Broker) -> None:
    """A message whose second transfer names another transaction than its first: the link is detached, and
    neither of the two can be committed without it.
    """
    control, sender, txn = _begun(broker)
    other = control.declare()
    sender.send(HALF, more=True, state=within(txn))
    sender.send_more(REST, state=within(other))
    sender.expect_detach()
    for each in (txn, other):
        control.refused(Discharge(txn_id=each, fail=False), ROLLBACK)
    expect_left(broker, broker.queue())


@scenario("4.4.1/partial", "4.4.1-partial", "4.4.1-03", "4.5.8-rollback")
def partial(broker: Broker) -> None:
    """A commit while a message is half sent: the control link is terminated, and all is rolled back."""
    control, sender, txn = _begun(broker)
    post(sender, txn, b"whole", settled=True)
    sender.send(HALF, more=True, state=within(txn))
    control.ask(Discharge(txn_id=txn, fail=False))
    control.link.expect_detach(ROLLBACK)
    expect_left(broker, broker.queue())


@scenario("4.4.1/partial-rollback", "4.3-04", "4.4.1-partial", profile="full", breaks="4.5.3-discharge")
def partial_rollback(broker: Broker) -> None:
    """A rollback while a message is half sent is accepted; the rest of it then names an unknown id."""
    control, sender, txn = _begun(broker)
    sender.send(HALF, more=True, state=within(txn))
    control.roll_back(txn)
    sender.send_more(REST, state=within(txn))
    sender.expect_detach(UNKNOWN_ID)
    expect_left(broker, broker.queue())


@scenario("4.4.1/partial-elsewhere", "4.4.1-partial", profile="full")
def partial_elsewhere(broker: Broker) -> None:
    """A message that is half sent in one transaction does not hinder the commit of another."""
    control, sender, txn = _begun(broker)
    sender.send(HALF, more=True, state=within(txn))
    other = control.declare()
    post(control.session.sender(broker.queue(), handle=2, name="sender-2"), other, b"whole")
    control.commit(other)
    expect_left(broker, broker.queue(), b"whole")
    sender.send_more(aborted=True)
    control.commit(txn)
    expect_left(broker, broker.queue(), b"whole")


@scenario("4.4.1/invisible-to-itself", "4.4.1-not-available")
def invisible_to_itself(broker: Broker) -> None:
    """Before its discharge a transaction's own connection does not get what it posted, either."""
    control, sender, txn = _begun(broker)
    receiver = control.session.receiver(broker.queue(), credit=5)
    post(sender, txn, b"not yet", settled=True)
    control.peer.expect_nothing(Transfer)
    control.commit(txn, skip=(Transfer,))
    if control.session.next_incoming_id == 0:
        receiver.receive()


@scenario("4.4.1/invisible-to-browsers", "4.4.1-not-available")
def invisible_to_browsers(broker: Broker) -> None:
    """A copying link does not see what is posted before the discharge, either, and sees it after."""
    control, sender, txn = _begun(broker)
    browser = copying(broker, broker.queue())
    browser.flow(10)
    post(sender, txn, b"1", b"2")
    control.session.catch_up()
    browser.peer.expect_nothing(Transfer)
    browser.peer.close()
    control.commit(txn)
    late = copying(broker, broker.queue())
    late.flow(10)
    late.take(2)


@scenario("4.4.1/state-outcome-ignored", "4.4.1-05", profile="full")
def state_outcome_ignored(broker: Broker) -> None:
    """An outcome in the state of a transfer is not the sender's to say: the post is accepted."""
    control, sender, txn = _begun(broker)
    number = sender.send(data(b"there"), state=within(txn, Released()))
    expect_provisional(sender, number, txn, Accepted)
    control.commit(txn)
    expect_left(broker, broker.queue(), b"there")


@scenario("4.4.1/unknown-id", "4.5.8-unknown-id", "4.4-requests", breaks="4.4-01")
def unknown_id(broker: Broker) -> None:
    """A transfer that names an id that was never declared fails, settled or not; nothing is posted."""
    for settled in (False, True):
        control = Controller(broker)
        sender = control.session.sender(broker.queue())
        control.declare()
        post(sender, NEVER_DECLARED, b"never", settled=settled)
        expect_some_error(control.peer)
        control.peer.drop()
    expect_left(broker, broker.queue())


@scenario("4.4.1/unknown-id-detaches", "4.5.8-unknown-id", profile="full", breaks="4.4-01")
def unknown_id_detaches(broker: Broker, control: Controller) -> None:
    """A transfer that names an unknown id: its link is detached with it, and no other work is touched."""
    sender, txn = control.session.sender(broker.queue()), control.declare()
    other = control.session.sender(broker.queue(), handle=2, name="sender-2")
    post(sender, txn, b"good")
    for wrong in (NEVER_DECLARED, txn[:15], txn + b"\x00", b"", b"x" * 32):
        post(other, wrong, b"never")
        other.expect_detach(UNKNOWN_ID)
        other = control.session.sender(broker.queue(), handle=2, name="sender-2")
    control.commit(txn)
    expect_left(broker, broker.queue(), b"good")


@scenario("4.4.1/rejected-cannot-commit", "4.4.1-informs", "4.4.1-05", "4.5.8-rollback", profile="full")
def rejected_cannot_commit(broker: Broker, control: Controller) -> None:
    """A post that goes nowhere is provisionally rejected, and so is what follows; nothing can be committed
    without it.
    """
    sender, txn = control.session.sender(broker.queue()), control.declare()
    anonymous = anonymous_sender(control.session, handle=2)
    post(sender, txn, b"good")
    number = anonymous.send(elsewhere(broker.settings.unknown_address), state=within(txn))
    error_of(expect_provisional(anonymous, number, txn, Rejected))
    relayed = anonymous.send(elsewhere(broker.queue(), b"relayed"), state=within(txn))
    error_of(expect_provisional(anonymous, relayed, txn, Rejected), ROLLBACK)
    control.refused(Discharge(txn_id=txn, fail=False), ROLLBACK)
    expect_left(broker, broker.queue())


@scenario("4.4.1/expires", "4.4.1-not-available", profile="full", waits=True)
def expires(broker: Broker, control: Controller) -> None:
    """The time to live is judged at the commit: what has expired by then is not delivered."""
    sender, txn = control.session.sender(broker.queue()), control.declare()
    sender.send(encode_composite(Header(ttl=200)) + data(b"short"), state=within(txn))
    sender.send(encode_composite(Header(ttl=60_000)) + data(b"long"), state=within(txn))
    time.sleep(0.4)
    control.commit(txn)
    expect_left(broker, broker.queue(), b"long")


def _bounded(broker: Broker) -> str:
    """Returns the address of a queue for which the broker's configuration may have a bound."""
    return f"{broker.settings.address_prefix}bounded.{broker.container_id()}"


def _put(broker: Broker, sender: Sender, txn: bytes, body: bytes, *, settled: bool = False) -> int:
    """Posts through the anonymous terminus, whose credit is not the queue's; returns the delivery-id."""
    return sender.send(elsewhere(_bounded(broker), body), state=within(txn), settled=settled, wait=False)


@scenario("4.4.1/queue-full", "4.4.1-05", "4.4.1-informs", profile="full")
def queue_full(broker: Broker, control: Controller) -> None:
    """A post beyond the queue's capacity is provisionally rejected; the transaction cannot commit, and what
    it had posted has no place any more.
    """
    sender = anonymous_sender(control.session)
    txn = control.declare()
    fill(sender, _bounded(broker), txn)
    control.refused(Discharge(txn_id=txn, fail=False), ROLLBACK)
    expect_left(broker, _bounded(broker))


@scenario("4.4.1/queue-full-settled", "4.4.4.1-01", "4.5.8-rollback", profile="full")
def queue_full_settled(broker: Broker, control: Controller) -> None:
    """A settled post beyond the queue's capacity: nobody was told, so the transaction cannot commit."""
    sender = anonymous_sender(control.session)
    txn = control.declare()
    count = fill(sender, _bounded(broker), txn)
    control.roll_back(txn)
    txn = control.declare()
    sender.await_credit(count + 1)
    with control.peer.one_write():
        for number in range(count + 1):
            _put(broker, sender, txn, b"%d" % number, settled=True)
    control.refused(Discharge(txn_id=txn, fail=False), ROLLBACK)
    expect_left(broker, _bounded(broker))


@scenario("4.4.1/capacity-reserved", "4.4.1-informs", "4.4.4.1-02", profile="full")
def capacity_reserved(broker: Broker, control: Controller) -> None:
    """What a transaction has posted has its place: others cannot take it, and a rollback frees it."""
    sender = anonymous_sender(control.session)
    txn = control.declare()
    count = fill(sender, _bounded(broker), txn)
    stranger = Controller(broker, broker.session(container="stranger"))
    other = anonymous_sender(stranger.session)
    late = stranger.declare()
    number = _put(broker, other, late, b"too much")
    error_of(expect_provisional(other, number, late, Rejected), TOO_MUCH)
    stranger.roll_back(late)
    late = stranger.declare()
    control.roll_back(txn)
    posts = [_put(broker, other, late, b"%d" % number) for number in range(count)]
    for number in posts:
        expect_provisional(other, number, late, Accepted)
    stranger.commit(late)
    expect_left(broker, _bounded(broker), *(b"%d" % number for number in range(count)))

"""Detaching and closing links, and link errors (2.6.4 to 2.6.6, 2.7.7)."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Session
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transcript import describe
from amqp_broker.conformance.wire import ANY_ERROR
from amqp_broker.frames import (
    RECEIVER,
    Accepted,
    Attach,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Source,
    Transfer,
)

UNATTACHED = "amqp:session:unattached-handle"
ERRANT_LINK = "amqp:session:errant-link"


@scenario("2.6.6/close-sender", "2.6.6-closed", "2.7.7-unmaps")
def close_sender(broker: Broker) -> None:
    """A closing detach of our sender is answered by a closing detach."""
    answer = broker.session().sender(broker.queue()).detach()
    if not answer.closed or answer.error is not None:
        raise Unexpected(f"expected detach with closed and no error, got {describe(answer)}")


@scenario("2.6.6/close-receiver", "2.6.6-closed", "2.7.7-unmaps")
def close_receiver(broker: Broker) -> None:
    """A closing detach of our receiver is answered by a closing detach, and no transfer follows."""
    session = broker.session()
    sender = session.sender(broker.queue())
    receiver = session.receiver(broker.queue(), credit=10)
    answer = receiver.detach()
    if not answer.closed or answer.error is not None:
        raise Unexpected(f"expected detach with closed and no error, got {describe(answer)}")
    sender.put([data(b"not for the closed link")])
    session.peer.expect_nothing(Transfer, within_s=0.2)


@scenario("2.6.4/detach", "2.6.4-01", "2.7.7-unmaps")
def detach(broker: Broker) -> None:
    """A detach that does not close is answered by a detach."""
    answer = broker.session().sender(broker.queue()).detach(closed=False)
    if answer.error is not None:
        raise Unexpected(f"expected detach without error, got {describe(answer)}")


@scenario("2.6.4/reattach", "2.6.4-01", "2.7.3-06")
def reattach(broker: Broker) -> None:
    """A link that was detached can be attached again, and works."""
    session = broker.session()
    for number in range(2):
        link = session.sender(broker.queue(), name="again")
        link.put([data(b"%d" % number)])
        link.detach(closed=False)
    receiver = session.receiver(broker.queue(), name="reader", credit=2)
    receiver.receive()
    receiver.receive()


@scenario("2.6.4/pipelined-reattach", "2.6.4-01", "2.8.4-reused")
def pipelined_reattach(broker: Broker) -> None:
    """Detach and attach of the same link in one write are answered in turn."""
    session = broker.session()
    session.sender(broker.queue(), name="again")
    with session.peer.one_write():
        session.put(Detach(handle=0))
        link = session.put_sender(broker.queue(), name="again")
    session.peer.expect(Detach)
    link.expect_attach()
    link.put([data(b"after")])


@scenario("2.6.6/detach-with-error", "2.6.6-closed", "2.7.7-error")
def detach_with_error(broker: Broker) -> None:
    """A detach that carries an error of ours is answered by detach, and the session lives on."""
    session = broker.session()
    session.sender(broker.queue(), name="failing")
    error = Error(condition="amqp:internal-error", description="the client has failed")
    session.put(Detach(handle=0, closed=True, error=error))
    session.peer.expect(Detach)
    session.sender(broker.queue(), name="next").put([data(b"fine")])


@scenario("2.6.6/detach-unattached", "2.8.17-unattached-handle", "2.5.4-01")
def detach_unattached(broker: Broker) -> None:
    """A detach of a handle that no link has ends the session with unattached-handle."""
    session = broker.session()
    session.put(Detach(handle=9, closed=True))
    session.expect_end(UNATTACHED)
    broker.still_serves()


@scenario("2.6.6/transfer-unattached", "2.8.17-unattached-handle", "2.5.4-01")
def transfer_unattached(broker: Broker) -> None:
    """A transfer on a handle that no link has ends the session with unattached-handle."""
    session = broker.session()
    session.put(Transfer(handle=9, delivery_id=0, delivery_tag=b"t", message_format=0), data(b"lost"))
    session.expect_end(UNATTACHED)
    broker.still_serves()


@scenario("2.6.6/transfer-after-detach", "2.8.17-unattached-handle", "2.7.7-unmaps")
def transfer_after_detach(broker: Broker) -> None:
    """A transfer on a link that we have detached ends the session with unattached-handle."""
    session = broker.session()
    link = session.sender(broker.queue())
    link.put([data(b"before")])
    link.detach()
    session.put(Transfer(handle=0, delivery_id=1, delivery_tag=b"t", message_format=0), data(b"after"))
    session.expect_end(UNATTACHED)
    broker.still_serves()


@scenario("2.6.5/error-detaches", "2.6.5-01", "2.7.7-01", "2.7.5-01")
def error_detaches(broker: Broker) -> None:
    """An error of a link is answered at the link or above, with an error that says what is wrong."""
    session = broker.session()
    link = session.sender(broker.queue())
    link.await_credit()
    # A new delivery without delivery-id and delivery-tag.
    session.put(Transfer(handle=0), data(b"nameless"))
    answer = session.peer.expect_frame(Detach, End, Close).performative
    if answer.error is None:
        raise Unexpected(f"expected an error, got {describe(answer)}")
    broker.still_serves()


def _detached_with_error(broker: Broker) -> Session:
    """Returns a session with a link of handle 0, name "errant", that the broker has detached with an
    error.
    """
    session = broker.session()
    session.put_sender(broker.settings.unknown_address, handle=0, name="errant")
    attach = session.peer.expect_frame(Attach, End, Close).performative
    if not isinstance(attach, Attach):
        raise Unexpected(f"2.6.3-01: expected attach, then detach; got {describe(attach)}")
    if attach.target is not None:
        raise NotApplicable("the broker knows the unknown address; give another with --unknown-address")
    session.peer.expect_detach(ANY_ERROR)
    return session


@scenario("2.6.5/errant-link", "2.6.5-03", "2.8.17-errant-link", "2.6.5-02")
def errant_link(broker: Broker) -> None:
    """After its detach with an error the broker ends the session when more comes for that link."""
    session = _detached_with_error(broker)
    session.put(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0), data(b"more"))
    session.expect_end(ERRANT_LINK)
    broker.still_serves()


@scenario("2.6.5/errant-attach", "2.6.5-06", "2.8.17-errant-link", "2.6.5-05")
def errant_attach(broker: Broker) -> None:
    """After its detach with an error the broker ends the session on a pipelined attach of that link."""
    session = _detached_with_error(broker)
    session.put_sender(broker.queue(), handle=1, name="errant")
    session.expect_end(ERRANT_LINK)
    broker.still_serves()


@scenario("2.6.5/detach-is-no-error", "2.6.5-03", "2.6.6-closed")
def detach_is_no_error(broker: Broker) -> None:
    """After its detach with an error the broker takes our detach, and the session lives on."""
    session = _detached_with_error(broker)
    session.put(Detach(handle=0, closed=True))
    session.sender(broker.queue(), handle=0, name="next").put([data(b"fine")])
    session.peer.close()


@scenario("2.6.5/session-lives-on", "2.6.5-02", "2.6.5-01")
def session_lives_on(broker: Broker) -> None:
    """After a refused link, detached both ways, name and handle serve again."""
    session = broker.session()
    session.put_receiver(broker.settings.unknown_address, name="once")
    attach = session.peer.expect(Attach, name="once")
    if attach.source is not None:
        raise NotApplicable("the broker knows the unknown address; give another with --unknown-address")
    session.peer.expect(Detach)
    session.put(Detach(handle=1, closed=True))
    session.receiver(broker.queue(), name="once")
    session.peer.close()


@scenario("2.7.6/after-detach", "2.7.6-02", "3.3.1-remains")
def disposition_after_detach(broker: Broker) -> None:
    """A delivery of a link that was detached, not closed, is live: an outcome that follows is applied."""
    session = broker.session()
    session.sender(broker.queue()).put([data(b"settled late")])
    receiver = session.receiver(
        broker.queue(), credit=1, source=Source(address=broker.queue(), expiry_policy="never")
    )
    delivery = receiver.receive()
    receiver.detach(closed=False)
    session.put(Disposition(role=RECEIVER, first=delivery.delivery_id, settled=True, state=Accepted()))
    session.end()
    other = broker.session()
    other.receiver(broker.queue(), name="reader").expect_empty()
    other.peer.close()


@scenario("2.7.6/after-close", "3.3.1-remains", "3.4.4-source")
def close_returns(broker: Broker) -> None:
    """What was unsettled on a link that is closed becomes available to others."""
    session = broker.session()
    session.sender(broker.queue()).put([data(b"returns")])
    receiver = session.receiver(broker.queue(), credit=1)
    receiver.receive()
    receiver.detach(closed=True)
    session.receiver(broker.queue(), handle=5, name="other", credit=1).receive()

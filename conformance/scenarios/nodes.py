"""Distribution nodes: available, acquired, archived; moving and copying (3.3, 3.5.2)."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.queues import put
from amqp_broker.conformance.scenario import scenario
from amqp_broker.frames import Released, Source, Transfer


@scenario("3.3.1/acquired", "3.3.1-acquired", "3.3.1-ineligible", "3.3.1-available")
def acquired(broker: Broker) -> None:
    """A message that one link has acquired does not come over another."""
    put(broker, broker.queue(), b"only one of you")
    first, second = broker.session(), broker.session(container="second")
    first.receiver(broker.queue(), credit=1).receive()
    second.receiver(broker.queue(), credit=1)
    second.peer.expect_nothing(Transfer)


@scenario("3.3.1/released-to-another", "3.3.1-remains", "3.4.4-source")
def released_to_another(broker: Broker) -> None:
    """A message that one link releases comes over another that waits."""
    put(broker, broker.queue(), b"the other one's")
    first, second = broker.session(), broker.session(container="second")
    holder = first.receiver(broker.queue(), credit=1)
    delivery = holder.receive()
    waiting = second.receiver(broker.queue(), credit=1)
    holder.settle(delivery, Released())
    waiting.receive()


@scenario("3.3.1/competing", "3.3.1-ineligible", "3.5.7-move")
def competing(broker: Broker) -> None:
    """Two links at one queue get each message once between them."""
    put(broker, broker.queue(), *(b"%02d" % number for number in range(20)))
    got: list[bytes] = []
    receivers: list[Receiver] = []
    for number in range(2):
        session = broker.session(container=f"reader-{number}")
        receivers.append(session.receiver(broker.queue(), credit=10))
    for receiver in receivers:
        for _ in range(10):
            delivery = receiver.receive()
            got.append(delivery.payload[-2:])
            receiver.settle(delivery)
    if sorted(got) != [b"%02d" % number for number in range(20)]:
        raise Unexpected(f"expected each of 20 messages once, got {sorted(got)}")


@scenario("3.3.1/connection-lost", "3.3.1-remains", "3.3.1-default-outcome")
def connection_lost(broker: Broker) -> None:
    """What was unsettled on a connection that breaks goes to a link that waits."""
    put(broker, broker.queue(), b"back again")
    first, second = broker.session(), broker.session(container="second")
    first.receiver(broker.queue(), credit=1).receive()
    waiting = second.receiver(broker.queue(), credit=1)
    first.peer.drop()
    waiting.receive()


@scenario("3.3.1/returned-in-order", "3.3.1-remains", profile="full")
def returned_in_order(broker: Broker) -> None:
    """Messages that come back stand where they stood, before what came later."""
    put(broker, broker.queue(), b"1", b"2", b"3", b"4")
    session = broker.session()
    receiver = session.receiver(broker.queue(), credit=3)
    for _ in range(3):
        receiver.receive()
    receiver.detach()
    again = session.receiver(broker.queue(), handle=2, name="again", credit=4)
    order = [again.receive().payload[-1:] for _ in range(4)]
    if order != [b"1", b"2", b"3", b"4"]:
        raise Unexpected(f"expected 1 2 3 4, got {order}")


@scenario("3.5.2/accepted-is-gone", "3.5.2-01", "3.5.2-move", "3.5.7-move", "3.4.2-retired")
def accepted_is_gone(broker: Broker) -> None:
    """A message that was accepted is never sent again."""
    put(broker, broker.queue(), b"once")
    session = broker.session()
    receiver = session.receiver(broker.queue(), credit=1)
    receiver.settle(receiver.receive())
    session.catch_up()
    session.end()
    session = session.peer.begin()
    session.receiver(broker.queue(), handle=3, name="again").expect_empty()


def _copying(broker: Broker, address: str, name: str) -> Receiver:
    session = broker.session(container=f"{name}")
    source = Source(address=address, distribution_mode="copy")
    receiver = session.receiver(address, name=name, source=source)
    assert receiver.remote_attach is not None
    mode = getattr(receiver.remote_attach.source, "distribution_mode", None)
    if mode != "copy":
        raise NotApplicable(f"the broker's source has the distribution-mode {mode!r} where copy was wished")
    return receiver


@scenario("3.5.2/copy", "3.5.2-copy", "3.5.7-copy")
def copy(broker: Broker) -> None:
    """A copying link leaves the messages: they come over another copying link, and over a moving one."""
    put(broker, broker.queue(), b"1", b"2")
    for name in ("first", "second"):
        receiver = _copying(broker, broker.queue(), name)
        receiver.flow(2)
        for body in (b"1", b"2"):
            delivery = receiver.receive()
            if not delivery.payload.endswith(body):
                raise Unexpected(f"expected {body!r} next")
            if not delivery.transfer.settled:
                receiver.settle(delivery)
        receiver.peer.close()
    mover = broker.session().receiver(broker.queue(), credit=2)
    mover.receive()
    mover.receive()


@scenario("3.5.2/copy-does-not-repeat", "3.5.2-02", "3.5.2-01")
def copy_does_not_repeat(broker: Broker) -> None:
    """A copying link gets each message once, though it stays at the node."""
    put(broker, broker.queue(), b"1", b"2")
    receiver = _copying(broker, broker.queue(), "browser")
    receiver.flow(10)
    for _ in range(2):
        delivery = receiver.receive()
        if not delivery.transfer.settled:
            receiver.settle(delivery)
    receiver.peer.expect_nothing(Transfer)


@scenario("3.5.3/distribution-mode-reported", "3.5.3-07")
def distribution_mode_reported(broker: Broker) -> None:
    """A broker that offers more than one distribution-mode says which one a link has."""
    _copying(broker, broker.queue(), "browser")
    attach = broker.session().receiver(broker.queue()).remote_attach
    assert attach is not None
    if getattr(attach.source, "distribution_mode", None) is None:
        raise Unexpected("the source of a moving link names no distribution-mode, though copy is offered")

"""What a JMS client attaches: destinations by their capability, subscriptions, selectors.

The page is docs/protocols/jms.md. A broker that lacks a capability need not have what it is for: the scenario
then shows nothing.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver, Sender, Session
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, expect_equal
from amqp_broker.conformance.queues import body_of
from amqp_broker.conformance.transcript import describe_value
from amqp_broker.frames import (
    Attach,
    DeleteOnClose,
    Described,
    Detach,
    Disposition,
    Flow,
    Source,
    Symbol,
    Target,
    Transfer,
    Ulong,
)
from amqp_broker.testing.peer import Delivery

QUEUE, TOPIC = "queue", "topic"
TEMPORARY_QUEUE, TEMPORARY_TOPIC = "temporary-queue", "temporary-topic"
SHARED, GLOBAL = "shared", "global"

SHARED_SUBS = "SHARED-SUBS"
DELAYED_DELIVERY = "DELAYED_DELIVERY"

SELECTOR = Symbol("apache.org:selector-filter:string")
SELECTOR_CODE = Ulong(0x0000_468C_0000_0004)
NO_LOCAL = Symbol("apache.org:no-local-filter:list")
NO_LOCAL_CODE = Ulong(0x0000_468C_0000_0003)

DURABLE: dict[str, Any] = {"durable": 2, "expiry_policy": "never"}
"""What makes the source of a subscriber durable."""

Link = TypeVar("Link", Sender, Receiver)


def require_offered(session: Session, capability: str) -> None:
    """Ends the scenario as not applicable where the open of the broker does not offer a capability."""
    opened = session.peer.remote_open
    offered = [str(each) for each in (opened and opened.offered_capabilities) or ()]
    if capability not in offered:
        told = ", ".join(offered) or "nothing"
        raise NotApplicable(f"the broker does not offer {capability} (it offers {told})")


def attached(link: Link, *capabilities: str) -> Link:
    """Waits for the broker's attach; not applicable where its terminus lacks what it was asked for."""
    link.peer.expect(Attach, skip=(Disposition,), name=link.name)
    wished = " and ".join(capabilities)
    if link.remote_terminus is None:
        error = link.peer.expect(Detach).error
        raise NotApplicable(f"the broker has no {wished}: {describe_value(error)}")
    held = [str(each) for each in link.remote_terminus.capabilities or ()]
    if missing := [each for each in capabilities if each not in held]:
        raise NotApplicable(f"asked for {wished}, the broker's terminus lacks {', '.join(missing)}")
    return link


def target(session: Session, address: str | None, *capabilities: str, **fields: Any) -> Sender:
    """A link on which we send to a destination of these capabilities."""
    handle = max(session.links, default=-1) + 1
    wished = Target(address=address, capabilities=capabilities or None, **fields)
    return attached(session.put_sender(None, handle, f"producer-{handle}", target=wished), *capabilities)


def source(
    session: Session, address: str | None, *capabilities: str, name: str = "", credit: int = 0, **fields: Any
) -> Receiver:
    """A link on which we receive from a destination of these capabilities; ``fields`` are of the source."""
    handle = max(session.links, default=-1) + 1
    wished = Source(address=address, capabilities=capabilities or None, **fields)
    link = session.put_receiver(None, handle, name or f"consumer-{handle}", source=wished)
    attached(link, *capabilities)
    if credit:
        link.flow(credit)
    return link


def temporary(session: Session, capability: str) -> Sender:
    """The link that has made a temporary destination: `Sender.address` says where."""
    properties = {"lifetime-policy": DeleteOnClose()}
    return target(session, None, capability, dynamic=True, dynamic_node_properties=properties)


def publish(broker: Broker, address: str, *payloads: bytes, container: str = "publisher") -> None:
    """Messages to a topic, over a connection of their own; all are accepted."""
    session = broker.session(container=container)
    target(session, address, TOPIC).put(payloads)
    session.peer.close()


def selector(words: str, descriptor: Symbol | Ulong = SELECTOR) -> dict[Any, Any]:
    """The filters of a source, with this selector."""
    return {Symbol("jms-selector"): Described(descriptor, words)}


def no_local(descriptor: Symbol | Ulong = NO_LOCAL) -> dict[Any, Any]:
    """The filters of a source that keep out what the own container sends."""
    return {Symbol("no-local"): Described(descriptor, [])}


def selecting(
    session: Session, address: str, wished: dict[Any, Any], *capabilities: str, **fields: Any
) -> Receiver:
    """A link with filters; not applicable where the broker's attach lacks them."""
    link = source(session, address, *capabilities, filter=wished, **fields)
    held = getattr(link.attach.source, "filter", None) or {}
    (name, asked), *_ = wished.items()
    found = [each for key, each in held.items() if str(getattr(key, "value", key)) == name.value]
    if not found:
        raise NotApplicable(f"the broker's source has not the filter {describe_value(asked)}")
    expect_equal("the filter of the broker's source", asked.value, getattr(found[0], "value", found[0]))
    return link


def drained(receiver: Receiver, credit: int = 20) -> list[Delivery]:
    """What is there now: gives credit and drains, as `receiveNoWait` and browsers do."""
    receiver.flow(credit, drain=True)
    found = []
    while receiver.credit:
        if isinstance(receiver.peer.expect_frame(Transfer, Flow).performative, Transfer):
            found.append(receiver.deliveries[-1])
    return found


def share(*receivers: Receiver) -> list[list[Delivery]]:
    """What links of one connection get that have credit, until it is used up."""
    while any(each.credit for each in receivers):
        receivers[0].peer.expect_frame(Transfer)
    return [list(each.deliveries) for each in receivers]


def bodies_of(deliveries: Iterable[Delivery]) -> list[bytes]:
    """Of messages whose body is data."""
    return [body_of(each) for each in deliveries]


def expect_bodies(receiver: Receiver, *bodies: bytes) -> list[Delivery]:
    """Gives credit and accepts what comes: exactly these messages, in this order."""
    receiver.flow(len(bodies) + 1)
    deliveries = []
    for _ in bodies:
        deliveries.append(receiver.receive(skip=(Disposition,)))
        if not deliveries[-1].settled:
            receiver.settle(deliveries[-1])
    receiver.peer.expect_nothing(Transfer, within_s=0.25)
    receiver.flow(0)
    if bodies_of(deliveries) != list(bodies):
        raise Unexpected(f"expected {list(bodies)}, got {bodies_of(deliveries)}")
    return deliveries

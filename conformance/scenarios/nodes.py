"""Nodes: available, acquired, archived, moved and copied (3.3, 3.5.2); sources and targets (3.5)."""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver, Sender, Session
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, error_of, expect
from amqp_broker.conformance.queues import put
from amqp_broker.conformance.scenario import Case, cases, scenario
from amqp_broker.conformance.transcript import describe, describe_value
from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Attach,
    Close,
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    Described,
    Detach,
    Disposition,
    End,
    Released,
    Source,
    Symbol,
    Target,
    Transfer,
)


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
    receiver.take(3)
    receiver.detach()
    again = session.receiver(broker.queue(), handle=2, name="again", credit=4)
    order = [again.receive().payload[-1:] for _ in range(4)]
    expect(order == [b"1", b"2", b"3", b"4"], f"expected 1 2 3 4, got {order}")


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
    mode = getattr(receiver.attach.source, "distribution_mode", None)
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
            expect(delivery.payload.endswith(body), f"expected {body!r} next")
            if not delivery.transfer.settled:
                receiver.settle(delivery)
        receiver.peer.close()
    mover = broker.session().receiver(broker.queue(), credit=2)
    mover.take(2)


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
    attach = broker.session().receiver(broker.queue()).attach
    if getattr(attach.source, "distribution_mode", None) is None:
        raise Unexpected("the source of a moving link names no distribution-mode, though copy is offered")


@scenario("3.5/one-node", "3.5-address", "3.3.1-available")
def one_node(broker: Broker) -> None:
    """The same address is the same node: what is sent to it is received from it, by another connection."""
    broker.session().sender(broker.queue()).put([data(b"to one node")])
    other = broker.session(container="other")
    if not other.receiver(broker.queue(), credit=1).receive().payload.endswith(b"to one node"):
        raise Unexpected("another message came")


@scenario("3.5/two-nodes", "3.5-address")
def two_nodes(broker: Broker, session: Session) -> None:
    """Another address is another node: nothing comes from it."""
    session.sender(broker.queue("one")).put([data(b"to one node")])
    session.receiver(broker.queue("another")).expect_empty()


def _dynamic(broker: Broker, session: Session, role: bool, **fields: object) -> str:
    """Attaches with dynamic set and returns the address that the broker made up."""
    if role is RECEIVER:
        source = Source(dynamic=True, **fields)  # type: ignore[arg-type]
        session.put_receiver(None, handle=1, name="dynamic-in", source=source)
    else:
        target = Target(dynamic=True, **fields)  # type: ignore[arg-type]
        session.put_sender(None, handle=1, name="dynamic-out", target=target)
    attach = session.peer.expect_frame(Attach, End, Close).performative
    if not isinstance(attach, Attach):
        if attach.error is not None and attach.error.condition == "amqp:not-implemented":
            raise NotApplicable(f"the broker makes no dynamic nodes: {describe_value(attach.error)}")
        raise Unexpected(f"expected attach, got {describe(attach)}")
    terminus: Any = attach.source if role is RECEIVER else attach.target
    if terminus is None:
        detach = session.peer.expect(Detach)
        raise NotApplicable(f"the broker makes no dynamic nodes: {describe_value(detach.error)}")
    expect(terminus.address, f"expected an address, got {describe_value(terminus)}")
    expect(terminus.dynamic, "the terminus that was made on request does not say dynamic")
    return str(terminus.address)


@scenario("3.5.3/dynamic", "3.5.3-02", "3.5.3-dynamic", "3.5.3-01", "3.5.3-04")
def dynamic_source(broker: Broker, session: Session) -> None:
    """A dynamic source: the broker makes a node, tells its address, and others can send there."""
    address = _dynamic(broker, session, RECEIVER)
    broker.session(container="other").sender(address).put([data(b"for the dynamic node")])
    session.flow(handle=1, delivery_count=0, link_credit=1)
    session.peer.expect_frame(Transfer)


@scenario("3.5.4/dynamic", "3.5.4-02", "3.5.4-dynamic", "3.5.4-01", "3.5.4-04")
def dynamic_target(broker: Broker, session: Session) -> None:
    """A dynamic target: the broker makes a node and tells its address, where the link's messages are.

    Who made the node receives there: that others may is not said.
    """
    address = _dynamic(broker, session, SENDER)
    receiver = session.receiver(address, handle=2)
    link = session.links[1]
    assert isinstance(link, Sender)
    link.put([data(b"from the dynamic node")])
    receiver.flow(1)  # not before: what came first would differ
    receiver.receive()


@scenario("3.5.3/dynamic-two", "3.5.3-02", "3.5-address")
def dynamic_two(broker: Broker) -> None:
    """Two dynamic nodes have two addresses."""
    first, second = broker.session(), broker.session(container="other")
    if _dynamic(broker, first, RECEIVER) == _dynamic(broker, second, RECEIVER):
        raise Unexpected("two dynamic nodes have one address")


@cases(
    Case("3.5.3/dynamic-name", "3.5.3-03 3.5.3-05",
         "The address of a dynamic node shows the link's name and the container-id.",
         RECEIVER, "dynamic-in"),
    Case("3.5.4/dynamic-name", "3.5.4-03 3.5.4-05",
         "The address of a dynamic node made by a sender shows the link's name and the container-id.",
         SENDER, "dynamic-out"),
)
def _named(broker: Broker, role: bool, name: str) -> None:
    """Makes a dynamic node, whose address has to show who made it."""
    address = _dynamic(broker, broker.session(), role)
    for part in (name, broker.container_id()):
        expect(part in address, f"expected {part!r} in the address, got {address!r}")


@scenario("3.5.10/delete-on-close", "3.5.10-delete-on-close", "3.5.9-01")
def delete_on_close(broker: Broker, session: Session) -> None:
    """A node that is to be deleted on close is gone when its link is closed."""
    address = _dynamic(
        broker, session, RECEIVER, dynamic_node_properties={"lifetime-policy": DeleteOnClose()}
    )
    session.put(Detach(handle=1, closed=True))
    session.peer.expect(Detach)
    _expect_gone(session, address)


def _expect_gone(session: Session, address: str) -> None:
    """The address names nothing any more."""
    session.put_sender(address, handle=9, name="too-late")
    attach = session.peer.expect(Attach, name="too-late")
    if attach.target is not None:
        raise NotApplicable("the broker makes nodes on first use: the address is a new node now")
    session.peer.expect_detach()
    session.peer.close()


def _lasting(broker: Broker, session: Session, policy: object) -> str:
    """A node made by a sender (on handle 1) with this lifetime-policy; its address."""
    address = _dynamic(broker, session, SENDER, dynamic_node_properties={"lifetime-policy": policy})
    properties = getattr(session.links[1].remote_terminus, "dynamic_node_properties", None) or {}
    answered = properties.get("lifetime-policy")
    if type(answered) is not type(policy):
        raise NotApplicable(f"the broker answers with the lifetime-policy {describe_value(answered)}")
    return address


def _owner_puts_and_goes(session: Session) -> None:
    link = session.links[1]
    assert isinstance(link, Sender)
    link.put([data(b"outlives its sender")])
    link.detach()


@scenario("3.5.11/delete-on-no-links", "3.5.11-delete-on-no-links", "3.5.9-lifetime")
def delete_on_no_links(broker: Broker, session: Session) -> None:
    """A node that is to be deleted on no links outlives the one that made it while there is another."""
    address = _lasting(broker, session, DeleteOnNoLinks())
    other = broker.session(container="other")
    receiver = other.receiver(address, credit=1)
    _owner_puts_and_goes(session)
    receiver.settle(receiver.receive())
    receiver.detach()
    _expect_gone(session, address)


@scenario("3.5.12/delete-on-no-messages", "3.5.12-delete-on-no-messages", "3.5.9-lifetime")
def delete_on_no_messages(broker: Broker, session: Session) -> None:
    """A node that is to be deleted on no messages outlives the link that made it while it has one."""
    address = _lasting(broker, session, DeleteOnNoMessages())
    _owner_puts_and_goes(session)
    other = broker.session(container="other")
    receiver = other.receiver(address, credit=1)
    receiver.settle(receiver.receive())
    other.peer.drop()
    broker.still_serves()
    _expect_gone(session, address)


@scenario("3.5.12/outcome-before-the-end", "3.5.12-delete-on-no-messages", "2.6.12-settle", profile="full")
def outcome_before_the_end(broker: Broker, session: Session) -> None:
    """Who accepts the last message of such a node is told that this holds before the link ends with it."""
    address = _lasting(broker, session, DeleteOnNoMessages())
    _owner_puts_and_goes(session)
    other = broker.session(container="other")
    receiver = other.receiver(address, credit=1)
    delivery = receiver.receive()
    if delivery.transfer.settled:
        raise NotApplicable("the broker sends settled")
    receiver.settle(delivery, settled=False)
    answer = other.peer.expect_frame(Disposition, Detach).performative
    expect(isinstance(answer, Disposition), "the link ended before its outcome was answered")
    other.peer.close()


@scenario("3.5.13/delete-on-no-links-or-messages", "3.5.13-delete-on-no-links-or-messages", "3.5.9-lifetime")
def delete_on_no_links_or_messages(broker: Broker, session: Session) -> None:
    """A node that is to be deleted on no links or messages outlives both the one and the other."""
    address = _lasting(broker, session, DeleteOnNoLinksOrMessages())
    _owner_puts_and_goes(session)
    other = broker.session(container="other")
    receiver = other.receiver(address, credit=1)
    receiver.settle(receiver.receive())
    sender = other.sender(address, handle=3, name="one-more")
    sender.put([data(b"there are links")])
    receiver.flow(1)
    receiver.settle(receiver.receive())
    receiver.detach()
    sender.detach()
    _expect_gone(session, address)


@scenario("3.5.9/lives-with-its-link", "3.5.9-lifetime", "3.5.3-dynamic")
def lives_with_its_link(broker: Broker, session: Session) -> None:
    """A dynamic node lives at least as long as the link that made it, though other links come and go."""
    address = _dynamic(broker, session, RECEIVER)
    other = broker.session(container="other")
    for number in range(2):
        link = other.sender(address, name=f"guest-{number}")
        link.put([data(b"hello")])
        link.detach()


@scenario("3.5.9/supported-dist-modes", "3.5.9-02", "3.5.9-03")
def supported_dist_modes(broker: Broker, session: Session) -> None:
    """Where a dynamic node's properties name its distribution-modes, they are modes of the standard."""
    _dynamic(broker, session, RECEIVER, dynamic_node_properties={"supported-dist-modes": Symbol("move")})
    terminus = session.links[1].remote_terminus
    modes = (terminus.dynamic_node_properties or {}).get("supported-dist-modes")
    if modes is None:
        raise NotApplicable(
            "the broker does not name the distribution-modes of its dynamic nodes, and need not"
        )
    symbols = [item.value for item in getattr(modes, "items", [modes])]
    expect(set(symbols) <= {"move", "copy"}, f"not distribution-modes: {symbols}")
    session.peer.close()


@scenario("3.5.3/address-with-dynamic", "3.5.3-01", "3.5.3-04", profile="full", breaks="3.5.3-01")
def address_with_dynamic(broker: Broker, session: Session) -> None:
    """Who asks for a dynamic source may not name an address: an error, or the address is not used."""
    session.put_receiver(None, name="both", source=Source(address=broker.queue(), dynamic=True))
    attach = session.peer.expect(Attach, name="both")
    if attach.source is None:
        session.peer.expect_detach()
    elif isinstance(attach.source, Source) and attach.source.address == broker.queue():
        raise Unexpected("the broker took the address that must not be set")
    session.peer.close()


@scenario("3.5.3/unknown-filter", "3.5.3-filter", "2.6.3-03", "2.6.3-05", "3.5.8-01")
def unknown_filter(broker: Broker, session: Session) -> None:
    """A filter that the broker does not know is not in place, and the broker does not say that it is."""
    address = broker.queue()
    wished = {"x-conformance": Described(Symbol("conformance:no-such-filter:string"), "nothing")}
    session.put_receiver(address, name="filtered", source=Source(address=address, filter=wished))
    attach = session.peer.expect(Attach, name="filtered")
    if attach.source is None:
        session.peer.expect_detach()
        return
    if not isinstance(attach.source, Source) or attach.source.filter:
        raise Unexpected(
            f"the broker claims a filter that nobody has defined: {describe_value(attach.source)}"
        )


@scenario("3.5.3/unknown-capability", "2.6.3-03", "2.6.3-05")
def unknown_capability(broker: Broker, session: Session) -> None:
    """A capability of a terminus that the broker does not know is not claimed."""
    source = Source(address=broker.queue(), capabilities=("x-conformance-capability",))
    session.put_receiver(broker.queue(), name="capable", source=source)
    attach = session.peer.expect(Attach, name="capable")
    if attach.source is None:
        session.peer.expect_detach()
        return
    if "x-conformance-capability" in (getattr(attach.source, "capabilities", None) or ()):
        raise Unexpected("the broker claims a capability that nobody has defined")


def _refused(session: Session, attach: Attach) -> bool:
    """Whether the broker refuses our receiving link; then it has to say why."""
    if attach.source is not None:
        return False
    expect(session.peer.expect_detach().error is not None, "the broker refuses the link and does not say why")
    return True


@scenario("3.5.3/durable-terminus", "2.6.3-03")
def durable_terminus(broker: Broker, session: Session) -> None:
    """A source wished durable for ever is refused, or the broker says what it really is."""
    source = Source(address=broker.queue(), durable=2, expiry_policy="never", timeout=0)
    session.put_receiver(broker.queue(), name="lasting", source=source)
    attach = session.peer.expect(Attach, name="lasting")
    if _refused(session, attach):
        return
    durable = getattr(attach.source, "durable", 0)
    expect(durable in (0, 1, 2), f"terminus-durability {durable} does not exist")
    session.peer.close()


@scenario("3.5.9/another-lifetime-policy", "3.5.9-01")
def another_lifetime_policy(broker: Broker, session: Session) -> None:
    """A lifetime-policy that somebody else has defined is refused, or answered with one of the standard's."""
    policy = Described(Symbol("conformance:no-such-policy:list"), [])
    source = Source(dynamic=True, dynamic_node_properties={"lifetime-policy": policy})
    session.put_receiver(None, name="lifetime", source=source)
    attach = session.peer.expect_frame(Attach, End, Close).performative
    if not isinstance(attach, Attach):
        error_of(attach)
        return
    if _refused(session, attach):
        return
    properties = getattr(attach.source, "dynamic_node_properties", None) or {}
    if isinstance(properties.get("lifetime-policy"), Described):
        raise Unexpected("the broker claims a lifetime-policy that nobody has defined")
    session.peer.close()


@scenario("3.5/address-of-another-type", "3.5-address", "2.8.15-invalid-field", breaks="2.3.2-01")
def address_of_another_type(broker: Broker, session: Session) -> None:
    """An address that is no string is refused, and the connection's other links live on."""
    session.put_sender(None, name="odd", target=Target(address=[1, 2]))
    answer = session.peer.expect_frame(Attach, End, Close).performative
    if isinstance(answer, Attach):
        expect(answer.target is None, "the broker took a list for an address")
        answer = session.peer.expect(Detach)
    error_of(answer)
    broker.still_serves()


@scenario("3.5/minimal-termini", "2.6.3-reply", "3.5-address")
def minimal_termini(broker: Broker, session: Session) -> None:
    """A terminus of ours in which nothing is set is a terminus."""
    session.sender(broker.queue(), source=Source()).put([data(b"x")])
    session.receiver(broker.queue(), target=Target(), credit=1).receive()

"""Sources and targets: addresses, dynamic nodes, filters, capabilities (3.5)."""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Sender, Session
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transcript import describe, describe_value
from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Attach,
    Close,
    DeleteOnClose,
    Described,
    Detach,
    End,
    Source,
    Symbol,
    Target,
    Transfer,
)


@scenario("3.5/one-node", "3.5-address", "3.3.1-available")
def one_node(broker: Broker) -> None:
    """The same address is the same node: what is sent to it is received from it, by another connection."""
    broker.session().sender(broker.queue()).put([data(b"to one node")])
    other = broker.session(container="other")
    if not other.receiver(broker.queue(), credit=1).receive().payload.endswith(b"to one node"):
        raise Unexpected("another message came")


@scenario("3.5/two-nodes", "3.5-address")
def two_nodes(broker: Broker) -> None:
    """Another address is another node: nothing comes from it."""
    session = broker.session()
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
    if not terminus.address:
        raise Unexpected(f"expected an address, got {describe_value(terminus)}")
    if not terminus.dynamic:
        raise Unexpected("the terminus that was made on request does not say dynamic")
    return str(terminus.address)


@scenario("3.5.3/dynamic", "3.5.3-02", "3.5.3-dynamic", "3.5.3-01", "3.5.3-04")
def dynamic_source(broker: Broker) -> None:
    """A dynamic source: the broker makes a node, tells its address, and others can send there."""
    session = broker.session()
    address = _dynamic(broker, session, RECEIVER)
    broker.session(container="other").sender(address).put([data(b"for the dynamic node")])
    session.flow(handle=1, delivery_count=0, link_credit=1)
    session.peer.expect_frame(Transfer)


@scenario("3.5.4/dynamic", "3.5.4-02", "3.5.4-dynamic", "3.5.4-01", "3.5.4-04")
def dynamic_target(broker: Broker) -> None:
    """A dynamic target: the broker makes a node, tells its address, and others can receive there."""
    session = broker.session()
    address = _dynamic(broker, session, SENDER)
    receiver = broker.session(container="other").receiver(address, credit=1)
    link = session.links[1]
    assert isinstance(link, Sender)
    link.put([data(b"from the dynamic node")])
    receiver.receive()


@scenario("3.5.3/dynamic-two", "3.5.3-02", "3.5-address")
def dynamic_two(broker: Broker) -> None:
    """Two dynamic nodes have two addresses."""
    first, second = broker.session(), broker.session(container="other")
    if _dynamic(broker, first, RECEIVER) == _dynamic(broker, second, RECEIVER):
        raise Unexpected("two dynamic nodes have one address")


@scenario("3.5.3/dynamic-name", "3.5.3-03", "3.5.3-05")
def dynamic_name(broker: Broker) -> None:
    """The address of a dynamic node shows the link's name and the container-id."""
    session = broker.session()
    address = _dynamic(broker, session, RECEIVER)
    container_id = broker.container_id()
    if "dynamic-in" not in address or container_id not in address:
        raise Unexpected(f"expected 'dynamic-in' and {container_id!r} in the address, got {address!r}")


@scenario("3.5.4/dynamic-name", "3.5.4-03", "3.5.4-05")
def dynamic_target_name(broker: Broker) -> None:
    """The address of a dynamic node made by a sender shows the link's name and the container-id."""
    session = broker.session()
    address = _dynamic(broker, session, SENDER)
    container_id = broker.container_id()
    if "dynamic-out" not in address or container_id not in address:
        raise Unexpected(f"expected 'dynamic-out' and {container_id!r} in the address, got {address!r}")


@scenario("3.5.10/delete-on-close", "3.5.10-delete-on-close", "3.5.9-01")
def delete_on_close(broker: Broker) -> None:
    """A node that is to be deleted on close is gone when its link is closed."""
    session = broker.session()
    address = _dynamic(
        broker, session, RECEIVER, dynamic_node_properties={"lifetime-policy": DeleteOnClose()}
    )
    session.put(Detach(handle=1, closed=True))
    session.peer.expect(Detach)
    session.put_sender(address, handle=2, name="too-late")
    attach = session.peer.expect(Attach)
    if attach.target is not None:
        raise NotApplicable("the broker makes nodes on first use: the address is a new node now")
    session.peer.expect_detach()
    session.peer.close()


@scenario("3.5.9/lives-with-its-link", "3.5.9-lifetime", "3.5.3-dynamic")
def lives_with_its_link(broker: Broker) -> None:
    """A dynamic node lives at least as long as the link that made it, though other links come and go."""
    session = broker.session()
    address = _dynamic(broker, session, RECEIVER)
    other = broker.session(container="other")
    for number in range(2):
        link = other.sender(address, name=f"guest-{number}")
        link.put([data(b"hello")])
        link.detach()


@scenario("3.5.9/supported-dist-modes", "3.5.9-02", "3.5.9-03")
def supported_dist_modes(broker: Broker) -> None:
    """Where a dynamic node's properties name its distribution-modes, they are modes of the standard."""
    session = broker.session()
    _dynamic(broker, session, RECEIVER, dynamic_node_properties={"supported-dist-modes": Symbol("move")})
    terminus = session.links[1].remote_terminus
    modes = (terminus.dynamic_node_properties or {}).get("supported-dist-modes")
    if modes is None:
        raise NotApplicable(
            "the broker does not name the distribution-modes of its dynamic nodes, and need not"
        )
    symbols = [item.value for item in getattr(modes, "items", [modes])]
    if not set(symbols) <= {"move", "copy"}:
        raise Unexpected(f"not distribution-modes: {symbols}")
    session.peer.close()


@scenario("3.5.3/address-with-dynamic", "3.5.3-01", "3.5.3-04", profile="full")
def address_with_dynamic(broker: Broker) -> None:
    """Who asks for a dynamic source may not name an address: an error, or the address is not used."""
    session = broker.session()
    session.put_receiver(None, name="both", source=Source(address=broker.queue(), dynamic=True))
    attach = session.peer.expect(Attach, name="both")
    if attach.source is None:
        session.peer.expect_detach()
    elif isinstance(attach.source, Source) and attach.source.address == broker.queue():
        raise Unexpected("the broker took the address that must not be set")
    session.peer.close()


@scenario("3.5.3/unknown-filter", "3.5.3-filter", "2.6.3-03", "2.6.3-05", "3.5.8-01")
def unknown_filter(broker: Broker) -> None:
    """A filter that the broker does not know is not in place, and the broker does not say that it is."""
    session = broker.session()
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
def unknown_capability(broker: Broker) -> None:
    """A capability of a terminus that the broker does not know is not claimed."""
    session = broker.session()
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
    if session.peer.expect_detach().error is None:
        raise Unexpected("the broker refuses the link and does not say why")
    return True


@scenario("3.5.3/durable-terminus", "2.6.3-03")
def durable_terminus(broker: Broker) -> None:
    """A source wished durable for ever is refused, or the broker says what it really is."""
    session = broker.session()
    source = Source(address=broker.queue(), durable=2, expiry_policy="never", timeout=0)
    session.put_receiver(broker.queue(), name="lasting", source=source)
    attach = session.peer.expect(Attach, name="lasting")
    if _refused(session, attach):
        return
    durable = getattr(attach.source, "durable", 0)
    if durable not in (0, 1, 2):
        raise Unexpected(f"terminus-durability {durable} does not exist")
    session.peer.close()


@scenario("3.5.9/another-lifetime-policy", "3.5.9-01")
def another_lifetime_policy(broker: Broker) -> None:
    """A lifetime-policy that somebody else has defined is refused, or answered with one of the standard's."""
    session = broker.session()
    policy = Described(Symbol("conformance:no-such-policy:list"), [])
    source = Source(dynamic=True, dynamic_node_properties={"lifetime-policy": policy})
    session.put_receiver(None, name="lifetime", source=source)
    attach = session.peer.expect(Attach, name="lifetime")
    if _refused(session, attach):
        return
    properties = getattr(attach.source, "dynamic_node_properties", None) or {}
    if isinstance(properties.get("lifetime-policy"), Described):
        raise Unexpected("the broker claims a lifetime-policy that nobody has defined")
    session.peer.close()


@scenario("3.5/address-of-another-type", "3.5-address", "2.8.15-invalid-field")
def address_of_another_type(broker: Broker) -> None:
    """An address that is no string is refused, and the connection's other links live on."""
    session = broker.session()
    session.put_sender(None, name="odd", target=Target(address=[1, 2]))
    answer = session.peer.expect_frame(Attach, End, Close).performative
    if isinstance(answer, Attach):
        if answer.target is not None:
            raise Unexpected("the broker took a list for an address")
        answer = session.peer.expect(Detach)
    if answer.error is None:
        raise Unexpected(f"expected an error, got {describe(answer)}")
    broker.still_serves()


@scenario("3.5/minimal-termini", "2.6.3-reply", "3.5-address")
def minimal_termini(broker: Broker) -> None:
    """A terminus of ours in which nothing is set is a terminus."""
    session = broker.session()
    session.sender(broker.queue(), source=Source()).put([data(b"x")])
    session.receiver(broker.queue(), target=Target(), credit=1).receive()

"""What JMS programs need of connections and destinations (docs/protocols/jms.md)."""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Peer, Sender, Session
from amqp_broker.conformance.jms import (
    QUEUE,
    TEMPORARY_QUEUE,
    TEMPORARY_TOPIC,
    TOPIC,
    expect_bodies,
    require_offered,
    source,
    target,
    temporary,
)
from amqp_broker.conformance.messages import data, info_of
from amqp_broker.conformance.outcomes import (
    Unexpected,
    error_of,
    expect,
    expect_equal,
    in_some_attempt,
)
from amqp_broker.conformance.queues import body_of
from amqp_broker.conformance.scenario import Case, cases, scenario
from amqp_broker.conformance.transactions import anonymous_sender, elsewhere
from amqp_broker.conformance.transcript import describe_value
from amqp_broker.frames import (
    Accepted,
    Close,
    DeleteOnClose,
    Described,
    Open,
    Source,
    Target,
)

SOLE = "sole-connection-for-container"
RELAY = "ANONYMOUS-RELAY"


def _sole(broker: Broker) -> Session:
    """A session on a connection that has its container-id for itself."""
    session = broker.session(container="", desired_capabilities=(SOLE,))
    require_offered(session, SOLE)
    return session


def _claimed_again(broker: Broker) -> Close | None:
    """Another connection asks for the same container-id; the close that it gets."""
    peer = broker.logged_in()
    peer.put(broker.own_open(container="", desired_capabilities=(SOLE,)))
    peer.expect(Open)
    try:
        peer.expect_nothing(Close, within_s=0.3)
    except Unexpected:
        peer.put(Close())
        assert peer.closed is not None
        return peer.closed
    return None


@scenario(
    "jms.connection/sole", "jms.connection-container", "jms.connection-sole", "jms.connection-sole-error"
)
def sole(broker: Broker) -> None:
    """A second connection with a client identifier is closed: invalid-field, container-id."""
    first = _sole(broker)
    close = _claimed_again(broker)
    expect(close is not None, f"two connections have {broker.container_id()!r} for themselves")
    error = error_of(close, "amqp:invalid-field")
    expect_equal("invalid-field of its info", "container-id", info_of(error).get("invalid-field"))
    first.catch_up()
    other = broker.session(container="another", desired_capabilities=(SOLE,))
    other.catch_up()


@scenario("jms.connection/shares", "jms.connection-shares")
def shares(broker: Broker) -> None:
    """Two connections of one container-id that don't ask to be the only one are both served."""
    first, second = broker.session(), broker.session(container="")
    first.sender(broker.queue(), name="one").put([data(b"1")])
    second.sender(broker.queue(), name="two").put([data(b"2")])


@cases(
    Case("jms.connection/free-after-close", "jms.connection-free",
         "A client identifier is free when its connection was closed.", Peer.close),
    Case("jms.connection/free-after-loss", "jms.connection-free",
         "A client identifier is free when its connection was lost.", Peer.drop),
)
def _free(broker: Broker, end: Any) -> None:
    end(_sole(broker).peer)

    def attempt(number: int) -> None:
        expect(_claimed_again(broker) is None, "the container-id is still taken")

    in_some_attempt(attempt)


@scenario("jms.connection/properties", "jms.connection-properties")
def properties(broker: Broker) -> None:
    """The broker's open says its product and version."""
    told = broker.findings.properties
    for name in ("product", "version"):
        expect(isinstance(told.get(name), str) and told[name], f"no {name} in the properties of open: {told}")


def _relay(session: Session) -> Sender:
    require_offered(session, RELAY)
    return anonymous_sender(session)


@scenario("jms.connection/relay", "jms.connection-relay")
def relay(broker: Broker, session: Session) -> None:
    """A link whose target has no address takes messages for two queues."""
    sender = _relay(session)
    for name in ("one", "two"):
        sender.send(elsewhere(broker.queue(name), name.encode()))
        sender.expect_outcome(Accepted)
    for name in ("one", "two"):
        expect_bodies(source(session, broker.queue(name), QUEUE), name.encode())


@scenario("jms.connection/relay-refused", "jms.connection-relay-refused")
def relay_refused(broker: Broker, session: Session) -> None:
    """A message for an address that cannot be had is not accepted, and the link takes the next one."""
    sender = _relay(session)
    number = sender.send(elsewhere(broker.settings.unknown_address))
    state = session.await_settled(number)
    expect(not isinstance(state, Accepted), f"accepted for {broker.settings.unknown_address}")
    sender.send(elsewhere(broker.queue()))
    sender.expect_outcome(Accepted)


@cases(
    Case("jms.destination/queue", "jms.destination-queue",
         "A link to an address as a queue: the broker's terminus has the capability, in both directions.",
         QUEUE),
    Case("jms.destination/topic", "jms.destination-topic",
         "A link to an address as a topic: the broker's terminus has the capability, in both directions.",
         TOPIC),
)
def _capability(broker: Broker, capability: str) -> None:
    session = broker.session()
    receiver = source(session, broker.queue(), capability)
    sender = target(session, broker.queue(), capability)
    for link in (receiver, sender):
        expect_equal("the address", broker.queue(), link.remote_terminus.address)
    sender.put([data(b"there")])
    expect_bodies(receiver, b"there")


@cases(
    Case("jms.destination/topic-as-queue", "jms.destination-kinds",
         "A topic is refused to a consumer and a producer of a queue.", TOPIC, QUEUE),
    Case("jms.destination/queue-as-topic", "jms.destination-kinds",
         "A queue is refused to a subscriber and a publisher of a topic.", QUEUE, TOPIC),
)
def _kinds(broker: Broker, first: str, second: str) -> None:
    session = broker.session()
    address = broker.queue()
    target(session, address, first)
    wished = Source(address=address, capabilities=(second,))
    session.put_receiver(None, 8, "wrong source", source=wished).expect_refused()
    into = Target(address=address, capabilities=(second,))
    session.put_sender(None, 9, "wrong target", target=into).expect_refused()
    session.peer.close()


@scenario("jms.destination/copies", "jms.destination-copies")
def copies(broker: Broker, session: Session) -> None:
    """Each of four messages comes to one of two consumers of a queue, and to both subscribers of a topic."""
    four = [b"%d" % number for number in range(4)]
    others = [broker.session(container=f"consumer-{at}") for at in range(2)]
    consumers = [source(other, broker.queue(), QUEUE, credit=2) for other in others]
    target(session, broker.queue(), QUEUE).put(data(each) for each in four)
    got = [body_of(each) for consumer in consumers for each in consumer.take(2)]
    expect_equal("what came from the queue", four, sorted(got))
    topic = broker.queue("topic")
    subscribers = [source(other, topic, TOPIC) for other in others]
    target(session, topic, TOPIC).put(data(each) for each in four)
    for subscriber in subscribers:
        expect_bodies(subscriber, *four)


def _made(link: Sender) -> str:
    """The address of a temporary destination, which the broker's attach says with its kind and its life."""
    made = link.remote_terminus
    expect(made.dynamic and isinstance(made.address, str), f"no address of its own: {describe_value(made)}")
    policy = (made.dynamic_node_properties or {}).get("lifetime-policy")
    known = policy is None or isinstance(policy, (DeleteOnClose, Described))
    expect(known, f"expected the lifetime-policy delete-on-close, got {describe_value(policy)}")
    return link.address


@scenario("jms.destination/temporary-queue", "jms.destination-temporary-queue", "jms.destination-reply")
def temporary_queue(broker: Broker, session: Session) -> None:
    """A temporary queue is made for a request, and another connection replies to it."""
    address = _made(temporary(session, TEMPORARY_QUEUE))
    replies = source(session, address, TEMPORARY_QUEUE)
    server = broker.session(container="server")
    target(server, address, TEMPORARY_QUEUE).put([data(b"the reply")])
    expect_bodies(replies, b"the reply")


@scenario("jms.destination/temporary-topic", "jms.destination-temporary-topic")
def temporary_topic(broker: Broker, session: Session) -> None:
    """A temporary topic is made, and two subscribers each get what another connection sends there."""
    address = _made(temporary(session, TEMPORARY_TOPIC))
    subscribers = [source(session, address, TEMPORARY_TOPIC) for _ in range(2)]
    other = broker.session(container="other")
    target(other, address, TEMPORARY_TOPIC).put([data(b"1"), data(b"2")])
    for subscriber in subscribers:
        expect_bodies(subscriber, b"1", b"2")


@cases(
    Case("jms.destination/temporary-queue-closed", "jms.destination-gone",
         "A temporary queue is gone when the link is closed that made it.", TEMPORARY_QUEUE, Sender.detach),
    Case("jms.destination/temporary-topic-closed", "jms.destination-gone",
         "A temporary topic is gone when the link is closed that made it.", TEMPORARY_TOPIC, Sender.detach),
    Case("jms.destination/temporary-queue-lost", "jms.destination-gone",
         "A temporary queue is gone when the connection is lost that made it.", TEMPORARY_QUEUE),
    Case("jms.destination/temporary-topic-lost", "jms.destination-gone",
         "A temporary topic is gone when the connection is lost that made it.", TEMPORARY_TOPIC),
)
def _gone(broker: Broker, capability: str, end: Any = None) -> None:
    link = temporary(broker.session(), capability)
    address = link.address
    end(link) if end else link.peer.drop()

    def attempt(number: int) -> None:
        session = broker.session(container=f"late-{number}")
        late = session.put_sender(None, target=Target(address=address, capabilities=(capability,)))
        late.expect_refused()
        session.peer.close()

    in_some_attempt(attempt)

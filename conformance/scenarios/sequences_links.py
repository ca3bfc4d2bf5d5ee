"""Links of streams: capability, the answer to an attach, whose a stream is (sequences: on the wire)."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.outcomes import expect_equal
from amqp_broker.conformance.queues import expect_left
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.sequences import (
    ACCEPTED,
    CAPABILITY,
    PROFILE,
    STALE,
    UNAUTHORIZED,
    capabilities,
    chain,
    expect_link_refused,
    expect_told,
    other_principal,
    placed,
    sender_on,
    standing,
    stream_sender,
)


@scenario("seq.links/capability", "seq.fields-off", profile=PROFILE)
def capability(broker: Broker) -> None:
    """The target says that it takes sequences, whether the link names a stream or not."""
    for stream in (None, "s"):
        sender = stream_sender(broker, stream, container=str(stream))
        expect_equal(f"the capability {CAPABILITY}", True, CAPABILITY in capabilities(sender))


@scenario("seq.links/attach", "seq.links-attach", "seq.rule-first", profile=PROFILE)
def attach(broker: Broker) -> None:
    """The answer to an attach says where the stream stands; without one it says nothing."""
    sender = stream_sender(broker, "s")
    expect_equal("a new stream", (0, 0), standing(sender))
    expect_told(sender, [placed(place, None) for place in chain(1, 4, 6)], ACCEPTED * 4)
    expect_equal("the stream", (6, 4), standing(stream_sender(broker, "s", container="two")))
    expect_equal("another stream", (0, 0), standing(stream_sender(broker, "t", container="three")))
    plain = stream_sender(broker, container="four").remote_attach
    expect_equal("properties", None, plain.properties if plain else None)


@scenario("seq.links/key", "seq.links-key", profile=PROFILE)
def key(broker: Broker) -> None:
    """The same name at another queue is another stream."""
    session = broker.session()
    one, two = sender_on(session, broker.queue("one"), "s"), sender_on(session, broker.queue("two"), "s", 1)
    expect_told(one, [placed(place, None) for place in chain(1, 3)], ACCEPTED * 3)
    expect_told(two, [placed((1, 1, 0), None)], ACCEPTED)
    expect_equal("the stream", (0, 0), standing(sender_on(session, broker.queue("three"), "s", 2)))
    expect_left(broker, broker.queue("two"), b"1.1")


@scenario("seq.links/two-links", "seq.rule-1", "seq.links-key", profile=PROFILE)
def two_links(broker: Broker) -> None:
    """Two links of one stream in turns, on one session and on two connections: one order."""
    session = broker.session()
    links = [sender_on(session, broker.queue(), "s", handle) for handle in (0, 1)]
    links.append(stream_sender(broker, "s", container="other"))
    for number in range(1, 10):
        expect_told(links[number % 3], [placed((1, number, number - 1), None)], ACCEPTED)
    left = [b"1.%d" % number for number in range(1, 10)]
    expect_left(broker, broker.queue(), *left, in_order=True)


@scenario("seq.links/zombie", "seq.rule-8", "seq.outcomes-stale", profile=PROFILE)
def zombie(broker: Broker) -> None:
    """The successor of a sender that is not dead begins a new id: what the old one still sends changes
    nothing.
    """
    old = stream_sender(broker, "s", container="old")
    expect_told(old, [placed(place, None) for place in chain(1, 3)], ACCEPTED * 3)
    new = stream_sender(broker, "s", container="new")
    seq_id, seq_no = standing(new)
    expect_equal("the stream", (1, 3), (seq_id, seq_no))
    expect_told(new, [placed((2, 1, 0), None)], ACCEPTED)
    late = [placed(place, None) for place in chain(3, 5)]
    expect_told(old, late, [*ACCEPTED, STALE, STALE])
    expect_told(new, [placed((2, 2, 1), None)], ACCEPTED)
    expect_left(broker, broker.queue(), b"1.1", b"1.2", b"1.3", b"2.1", b"2.2", in_order=True)


@scenario("seq.links/foreign", "seq.links-owner", profile=PROFILE)
def foreign(broker: Broker) -> None:
    """A stream belongs to who used it first: others are refused, at the attach and for each message."""
    stranger = other_principal(broker)
    sender = stream_sender(broker)
    expect_told(sender, [placed((1, 1, 0))], ACCEPTED)
    theirs = sender_on(stranger, broker.queue())
    payloads = [placed((1, 2, 1)), placed((1, 1, 0)), placed((1, 1, 0), "their own")]
    expect_told(theirs, payloads, [UNAUTHORIZED, UNAUTHORIZED, *ACCEPTED])
    expect_link_refused(broker, "s", UNAUTHORIZED, stranger)
    expect_equal("the stream", (1, 1), standing(stream_sender(broker, "s", container="asks")))
    expect_told(sender, [placed((1, 1, 0), "their own")], [UNAUTHORIZED])

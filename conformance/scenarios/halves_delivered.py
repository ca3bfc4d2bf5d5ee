"""What becomes of the message of a half message: octets, room, time to live (half-messages: put)."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Sender
from amqp_broker.conformance.halves import UNKNOWN, Halves, Producer, half, half_id_annotation
from amqp_broker.conformance.messages import bare_octets, header_of
from amqp_broker.conformance.outcomes import NotApplicable, expect_equal
from amqp_broker.conformance.queues import expect_left
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import TOO_MUCH, Controller, anonymous_sender, fill
from amqp_broker.frames import Accepted, Detach, Header

HALVES = "half-messages"


@scenario("half.put/outlives-its-producer", "half.resolve-anyone", "half.put-capacity", profile=HALVES)
def outlives_its_producer(broker: Broker) -> None:
    """A half message outlives the connection that put it, which a transaction does not."""
    halves = Halves(broker)
    producer, other = halves.producer(), halves.producer("other")
    producer.put(half("1", b"still there"))
    halves.leave(producer.session)
    halves.pause(0.3)
    other.commit("1")
    expect_left(broker, halves.queue, b"still there")


@scenario("half.put/durable", "half.put-capacity", profile=HALVES)
def durable(broker: Broker) -> None:
    """A half message is durable whatever its header says."""
    halves = Halves(broker)
    producer, consumer = halves.producer(), halves.consumer()
    for half_id, header in (("1", None), ("2", Header(durable=False)), ("3", Header(durable=True))):
        producer.put(half(half_id, header=header))
        producer.commit(half_id)
        expect_equal("durable", True, header_of(halves.next(consumer).payload).durable)


@scenario("half.put/octets", "half.put-octets", profile=HALVES)
def octets(broker: Broker) -> None:
    """The bare message is delivered octet for octet, with its header, its annotations and x-opt-half-id."""
    halves = Halves(broker)
    producer, consumer = halves.producer(), halves.consumer()
    named = {"color": "blue", "half_max_age_ms": 60_000}
    properties = {"subject": "order", "correlation_id": b"x", "creation_time": 1_000, "user_id": b"me"}
    payload = half(
        "1",
        b"x" * 300,
        named=named,
        annotations={"x-opt-mine": "kept"},
        header=Header(priority=7),
        **properties,
    )
    producer.put(payload)
    producer.commit("1")
    delivery = halves.next(consumer)
    expect_equal("the bare message", bare_octets(payload), bare_octets(delivery.payload))
    expect_equal("x-opt-half-id", "1", half_id_annotation(delivery))
    expect_equal("whether the annotation is kept", True, b"x-opt-mine" in delivery.payload)
    priority = header_of(delivery.payload).priority
    expect_equal("priority", 7, getattr(priority, "value", priority))


@scenario("half.put/ttl", "half.put-ttl", profile=HALVES, waits=True)
def ttl(broker: Broker) -> None:
    """The time to live starts at the commit; from then on it passes."""
    halves = Halves(broker)
    producer = halves.producer()
    producer.put(
        half("1", b"first", header=Header(ttl=1_000)), half("2", b"second", header=Header(ttl=1_000))
    )
    halves.pause(1.5)
    producer.commit("1")
    expect_left(broker, halves.queue, b"first")
    producer.commit("2")
    halves.pause(1.5)
    expect_left(broker, halves.queue)


@scenario("half.put/aborted", "half.put-cut", profile=HALVES)
def aborted(broker: Broker) -> None:
    """A half message whose delivery is aborted was never put."""
    halves = Halves(broker)
    producer = halves.producer()
    producer.put_link.send(half("1", b"beginning"), more=True)
    producer.put_link.send_more(aborted=True)
    producer.conflict("1", "commit", UNKNOWN)
    producer.put(half("1", b"whole"))
    producer.commit("1")
    expect_left(broker, halves.queue, b"whole")


def _pieces(link: Sender, payload: bytes, count: int) -> list[bytes]:
    size = -(-len(payload) // count)
    most = link.session.peer.remote_max_frame_size
    if size + 100 > most:
        raise NotApplicable(f"{count} frames of {size} octets exceed the max-frame-size {most}")
    return [payload[start : start + size] for start in range(0, len(payload), size)]


def _large(producer: Producer, half_id: str) -> bytes:
    """Returns a half message of 8 MiB, or as large as the link takes."""
    attach = producer.put_link.remote_attach
    most = (attach and attach.max_message_size) or 1 << 30
    return half(half_id, bytes(range(256)) * (min(8 << 20, most - 1_024) // 256))


@scenario("half.put/cut", "half.put-cut", profile=HALVES)
def cut(broker: Broker) -> None:
    """8 MiB, as far as the link takes them, in frames that stop in the middle: nothing is left of it."""
    halves = Halves(broker)
    producer, other = halves.producer(), halves.producer("other")
    payload = _large(producer, "1")
    frames = max(100, -(-len(payload) // (min(producer.session.peer.remote_max_frame_size, 60_000) - 100)))
    pieces = _pieces(producer.put_link, payload, frames)
    producer.put_link.send(pieces[0], more=True)
    for piece in pieces[1 : len(pieces) // 2]:
        producer.put_link.send_more(piece, more=True)
    halves.leave(producer.session)
    other.conflict("1", "commit", UNKNOWN)
    other.put_link.send(payload, frame_octets=len(pieces[0]))
    other.put_link.expect_outcome(Accepted)
    other.commit("1")
    delivery = halves.next(halves.consumer())
    expect_equal(
        "whether the bare message is whole", True, bare_octets(payload) == bare_octets(delivery.payload)
    )


def _bound(halves: Halves) -> int:
    """Returns how many ordinary messages the destination takes, and leaves none of them there."""
    control = Controller(halves.broker, halves.session("measures"))
    txn = control.declare()
    count = fill(anonymous_sender(control.session), halves.queue, txn)
    control.roll_back(txn)
    return count


@scenario("half.put/capacity", "half.put-capacity", profile=HALVES)
def capacity(broker: Broker) -> None:
    """A half message has its place in the destination: kept until it is decided, free after a rollback."""
    halves = Halves(broker)
    halves.queue = f"{broker.settings.address_prefix}bounded.{broker.container_id()}"
    count = _bound(halves)
    producer = halves.producer()
    producer.put(*[half(f"{number}") for number in range(count)])
    producer.refused(half("too many"), TOO_MUCH)
    producer.roll_back("0")
    producer.put(half("again"))
    producer.refused(half("too many"), TOO_MUCH)
    producer.commit("again")
    producer.refused(half("too many"), TOO_MUCH)
    for number in range(1, count):
        producer.commit(f"{number}")
    deliveries = expect_left(broker, halves.queue, *([b"the body"] * count))
    expect_equal("the first", "again", half_id_annotation(deliveries[0]))
    producer.session.peer.expect_nothing(Detach)

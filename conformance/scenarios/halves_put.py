"""Half messages are put: stored, seen by nobody before their commit, and delivered as they were (half-
messages: put).
"""

from typing import Any
from uuid import UUID

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Sender
from amqp_broker.conformance.halves import (
    CONFLICT,
    ID_CONFLICT,
    ID_REQUIRED,
    INVALID,
    NOT_ALLOWED,
    UNKNOWN,
    Halves,
    Producer,
    half,
    half_id_annotation,
    refusal,
)
from amqp_broker.conformance.messages import bare_octets, header_of
from amqp_broker.conformance.outcomes import NotApplicable, expect_equal
from amqp_broker.conformance.queues import body_of, expect_left
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import TOO_MUCH, Controller, anonymous_sender, copying, fill
from amqp_broker.frames import Accepted, Detach, Header, Ulong


@scenario("half.put/invisible", "half.put-invisible", "half.resolve-open")
def invisible(broker: Broker, halves: Halves) -> None:
    """A half message is accepted, and neither a consumer nor a browser sees it before its commit."""
    producer, consumer = halves.producer(), halves.consumer()
    producer.put(half("1", b"half"))
    halves.silent(consumer)
    consumer.peer.drop()
    copying(broker, halves.queue).expect_empty()
    producer.commit("1")
    late = copying(broker, halves.queue)
    late.flow(1)
    expect_equal("the body", b"half", body_of(late.receive()))


@scenario("half.put/never-seen", "half.put-invisible", "half.resolve-open")
def never_seen(halves: Halves) -> None:
    """A half message that is rolled back is never seen."""
    producer, consumer = halves.producer(), halves.consumer()
    producer.put(half("1"), half("2", b"the other"))
    producer.roll_back("1")
    producer.commit("2")
    expect_equal("the body", b"the other", body_of(halves.next(consumer)))
    halves.silent(consumer)


@scenario("half.put/repeat", "half.put-repeat", "half.put-digest")
def repeat(broker: Broker, halves: Halves) -> None:
    """The same half message again is accepted and is one; message-id, creation-time, user-id do not count."""
    producer, other = halves.producer(), halves.producer("other")
    named = {"half_id": "1", "color": "blue"}
    producer.put(*[half(f"m{number}", named=named, creation_time=1_000 + number) for number in range(3)])
    other.put(half("again", named=named, user_id=b"somebody"), half(None, named=named))
    producer.put(half("again", named=named, header=Header(durable=True, delivery_count=1)))
    producer.commit("1")
    expect_left(broker, halves.queue, b"the body")


@scenario("half.put/other-content", "half.put-repeat", "half.put-digest")
def other_content(broker: Broker, producer: Producer) -> None:
    """Another body, subject, application property or destination under the same half-id is refused."""
    elsewhere = producer.halves.producer("elsewhere", broker.queue("elsewhere"))
    producer.put(half("1", named={"color": "blue"}))
    for other in (
        half("1", b"another body", named={"color": "blue"}),
        half("1", named={"color": "blue"}, subject="another"),
        half("1", named={"color": "red"}),
        half("1"),
    ):
        producer.refused(other, ID_CONFLICT)
    elsewhere.refused(half("1", named={"color": "blue"}), ID_CONFLICT)
    producer.commit("1")
    expect_left(broker, producer.queue, b"the body")
    expect_left(broker, broker.queue("elsewhere"))


@scenario("half.put/decided", "half.put-repeat", "half.resolve-info")
def decided(broker: Broker, producer: Producer) -> None:
    """Put again after it was decided: half:conflict, with what was decided; nothing comes of it."""
    producer.put(half("1", b"one"), half("2", b"two"))
    producer.commit("1")
    producer.roll_back("2")
    for half_id, body, state in (("1", b"one", "committed"), ("2", b"two", "rolled-back")):
        error = producer.refused(half(half_id, body), CONFLICT)
        expect_equal(
            "half_state", state, {str(key): value for key, value in (error.info or {}).items()}["half_state"]
        )
    expect_left(broker, producer.queue, b"one")


@scenario("half.put/id-required", "half.put-id-required")
def id_required(producer: Producer) -> None:
    """Neither half_id nor message-id: rejected half:id-required; the link lives on."""
    error = producer.refused(half(None), ID_REQUIRED)
    expect_equal("whether it says why", True, bool(error.description))
    producer.refused(half(None, named={"color": "blue"}), ID_REQUIRED)
    producer.put(half("1"))


@scenario("half.put/id-length", "half.put-id")
def id_length(producer: Producer) -> None:
    """A half-id has 1 to 256 octets, of UTF-8 where it is a string, and half_id is a string."""
    producer.put(half("x" * 256), half(None, named={"half_id": "\N{EURO SIGN}" * 85}), half("y"))
    producer.commit("x" * 256)
    producer.commit("\N{EURO SIGN}" * 85)
    for wrong in ("", "x" * 257, "\N{EURO SIGN}" * 86):
        producer.refused(half(None, named={"half_id": wrong}), ID_REQUIRED, INVALID)
    for number in (Ulong(7), b"bytes"):
        producer.refused(half("1", named={"half_id": number}), INVALID, ID_REQUIRED)


IDS: tuple[Any, ...] = ("1", b"1", Ulong(1), UUID(int=1), "01", Ulong(49))
"""Half-ids that are equal as text or octets, and are six."""


@scenario("half.put/id-type", "half.put-id", "half.resolve-message")
def id_type(halves: Halves) -> None:
    """Half-ids are compared by type and value: a string, octets, a number and a UUID are four messages."""
    producer, consumer = halves.producer(), halves.consumer()
    producer.put(*[half(half_id, b"%d" % number) for number, half_id in enumerate(IDS)])
    for number, half_id in enumerate(IDS):
        producer.commit(half_id)
        delivery = halves.next(consumer)
        expect_equal("the body", b"%d" % number, body_of(delivery))
        expect_equal("x-opt-half-id", half_id, half_id_annotation(delivery))


@scenario("half.put/id-property", "half.put-id")
def id_property(broker: Broker, producer: Producer) -> None:
    """The application property half_id counts before the message-id."""
    producer.put(half("of the message", named={"half_id": "of its own"}))
    producer.conflict("of the message", "commit", UNKNOWN)
    producer.commit("of its own")
    producer.refused(half("of its own", b"another"), ID_CONFLICT)
    expect_left(broker, producer.queue, b"the body")


@scenario("half.put/settled", "half.put-settled")
def settled(broker: Broker, halves: Halves) -> None:
    """Who does not wait for the outcome is refused: at the attach, or with the link at the transfer."""
    session = halves.session("producer")
    addresses = (f"$half/{halves.group}/{halves.queue}", f"$half-resolve/{halves.group}")
    for number, address in enumerate(addresses):
        refusal(session, address, NOT_ALLOWED, snd_settle_mode=1)
        link = session.sender(address, number, name=f"mixed-{number}", snd_settle_mode=2)
        link.send(half("1"), settled=True)
        link.expect_detach(NOT_ALLOWED)
    other = halves.producer("other")
    other.conflict("1", "commit", UNKNOWN)
    expect_left(broker, halves.queue)


@scenario("half.put/reserved", "half.put-reserved", "half.put-silence")
def reserved(broker: Broker, producer: Producer) -> None:
    """Reserved names, a delivery time and sequence fields on a half message are refused, not dropped."""
    for name in ("half_", "half_state", "half_first_check", "half_reason", "seq_stream", "seq_no"):
        producer.refused(half("1", named={name: 1}), NOT_ALLOWED)
    for name in ("x-opt-delivery-time", "x-opt-seq-stream", "x-opt-seq-no"):
        producer.refused(half("1", annotations={name: 1}), NOT_ALLOWED)
    producer.put(half("1", named={"halfway": "there"}, annotations={"x-opt-mine": 1}))
    producer.commit("1")
    expect_left(broker, producer.queue, b"the body")


@scenario("half.put/timers", "half.put-timers", "half.put-silence")
def timers(producer: Producer) -> None:
    """Times that are no numbers, are negative or exceed the group's maximum age are refused."""
    for name in ("half_first_check_ms", "half_max_age_ms"):
        for wrong in (-1, "soon", 366 * 24 * 3_600_000, 1.5, b"1"):
            producer.refused(half("1", named={name: wrong}), INVALID)
    producer.conflict("1", "commit", UNKNOWN)
    producer.put(half("1", named={"half_first_check_ms": 10_000, "half_max_age_ms": 20_000}))
    producer.roll_back("1")


@scenario("half.put/outlives-its-producer", "half.resolve-anyone", "half.put-capacity")
def outlives_its_producer(broker: Broker, halves: Halves) -> None:
    """A half message outlives the connection that put it, which a transaction does not."""
    producer, other = halves.producer(), halves.producer("other")
    producer.put(half("1", b"still there"))
    halves.leave(producer.session)
    halves.pause(0.3)
    other.commit("1")
    expect_left(broker, halves.queue, b"still there")


@scenario("half.put/durable", "half.put-capacity")
def durable(halves: Halves) -> None:
    """A half message is durable whatever its header says."""
    producer, consumer = halves.producer(), halves.consumer()
    for half_id, header in (("1", None), ("2", Header(durable=False)), ("3", Header(durable=True))):
        producer.put(half(half_id, header=header))
        producer.commit(half_id)
        expect_equal("durable", True, header_of(halves.next(consumer).payload).durable)


@scenario("half.put/octets", "half.put-octets")
def octets(halves: Halves) -> None:
    """The bare message is delivered octet for octet, with its header, its annotations and x-opt-half-id."""
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


@scenario("half.put/ttl", "half.put-ttl", waits=True)
def ttl(broker: Broker, producer: Producer) -> None:
    """The time to live starts at the commit; from then on it passes."""
    producer.put(
        half("1", b"first", header=Header(ttl=1_000)), half("2", b"second", header=Header(ttl=1_000))
    )
    producer.halves.pause(1.5)
    producer.commit("1")
    expect_left(broker, producer.queue, b"first")
    producer.commit("2")
    producer.halves.pause(1.5)
    expect_left(broker, producer.queue)


@scenario("half.put/aborted", "half.put-cut")
def aborted(broker: Broker, producer: Producer) -> None:
    """A half message whose delivery is aborted was never put."""
    producer.put_link.send(half("1", b"beginning"), more=True)
    producer.put_link.send_more(aborted=True)
    producer.conflict("1", "commit", UNKNOWN)
    producer.put(half("1", b"whole"))
    producer.commit("1")
    expect_left(broker, producer.queue, b"whole")


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


@scenario("half.put/cut", "half.put-cut")
def cut(halves: Halves) -> None:
    """8 MiB, as far as the link takes them, in frames that stop in the middle: nothing is left of it."""
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


@scenario("half.put/capacity", "half.put-capacity", breaks="2.6.7-illegal")
def capacity(broker: Broker, halves: Halves) -> None:
    """A half message has its place in the destination: kept until it is decided, free after a rollback."""
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

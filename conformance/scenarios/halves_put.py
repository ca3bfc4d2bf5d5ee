"""Half messages are put: stored, and seen by nobody before their commit (half-messages: put)."""

from typing import Any
from uuid import UUID

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.halves import (
    CONFLICT,
    ID_CONFLICT,
    ID_REQUIRED,
    INVALID,
    NOT_ALLOWED,
    UNKNOWN,
    Halves,
    half,
    half_id_annotation,
    refusal,
)
from amqp_broker.conformance.outcomes import expect_equal
from amqp_broker.conformance.queues import body_of, expect_left
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import copying
from amqp_broker.frames import Header, Ulong

HALVES = "half-messages"


@scenario("half.put/invisible", "half.put-invisible", "half.resolve-open", profile=HALVES)
def invisible(broker: Broker) -> None:
    """A half message is accepted, and neither a consumer nor a browser sees it before its commit."""
    halves = Halves(broker)
    producer, consumer = halves.producer(), halves.consumer()
    producer.put(half("1", b"half"))
    halves.silent(consumer)
    consumer.peer.drop()
    copying(broker, halves.queue).expect_empty()
    producer.commit("1")
    late = copying(broker, halves.queue)
    late.flow(1)
    expect_equal("the body", b"half", body_of(late.receive()))


@scenario("half.put/never-seen", "half.put-invisible", "half.resolve-open", profile=HALVES)
def never_seen(broker: Broker) -> None:
    """A half message that is rolled back is never seen."""
    halves = Halves(broker)
    producer, consumer = halves.producer(), halves.consumer()
    producer.put(half("1"), half("2", b"the other"))
    producer.roll_back("1")
    producer.commit("2")
    expect_equal("the body", b"the other", body_of(halves.next(consumer)))
    halves.silent(consumer)


@scenario("half.put/repeat", "half.put-repeat", "half.put-digest", profile=HALVES)
def repeat(broker: Broker) -> None:
    """The same half message again is accepted and is one; message-id, creation-time, user-id do not count."""
    halves = Halves(broker)
    producer, other = halves.producer(), halves.producer("other")
    named = {"half_id": "1", "color": "blue"}
    producer.put(*[half(f"m{number}", named=named, creation_time=1_000 + number) for number in range(3)])
    other.put(half("again", named=named, user_id=b"somebody"), half(None, named=named))
    producer.put(half("again", named=named, header=Header(durable=True, delivery_count=1)))
    producer.commit("1")
    expect_left(broker, halves.queue, b"the body")


@scenario("half.put/other-content", "half.put-repeat", "half.put-digest", profile=HALVES)
def other_content(broker: Broker) -> None:
    """Another body, subject, application property or destination under the same half-id is refused."""
    halves = Halves(broker)
    producer = halves.producer()
    elsewhere = halves.producer("elsewhere", broker.queue("elsewhere"))
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
    expect_left(broker, halves.queue, b"the body")
    expect_left(broker, broker.queue("elsewhere"))


@scenario("half.put/decided", "half.put-repeat", "half.resolve-info", profile=HALVES)
def decided(broker: Broker) -> None:
    """Put again after it was decided: half:conflict, with what was decided; nothing comes of it."""
    halves = Halves(broker)
    producer = halves.producer()
    producer.put(half("1", b"one"), half("2", b"two"))
    producer.commit("1")
    producer.roll_back("2")
    for half_id, body, state in (("1", b"one", "committed"), ("2", b"two", "rolled-back")):
        error = producer.refused(half(half_id, body), CONFLICT)
        expect_equal(
            "half_state", state, {str(key): value for key, value in (error.info or {}).items()}["half_state"]
        )
    expect_left(broker, halves.queue, b"one")


@scenario("half.put/id-required", "half.put-id-required", profile=HALVES)
def id_required(broker: Broker) -> None:
    """Neither half_id nor message-id: rejected half:id-required; the link lives on."""
    halves = Halves(broker)
    producer = halves.producer()
    error = producer.refused(half(None), ID_REQUIRED)
    expect_equal("whether it says why", True, bool(error.description))
    producer.refused(half(None, named={"color": "blue"}), ID_REQUIRED)
    producer.put(half("1"))


@scenario("half.put/id-length", "half.put-id", profile=HALVES)
def id_length(broker: Broker) -> None:
    """A half-id has 1 to 256 octets, of UTF-8 where it is a string, and half_id is a string."""
    halves = Halves(broker)
    producer = halves.producer()
    producer.put(half("x" * 256), half(None, named={"half_id": "\N{EURO SIGN}" * 85}), half("y"))
    producer.commit("x" * 256)
    producer.commit("\N{EURO SIGN}" * 85)
    for wrong in ("", "x" * 257, "\N{EURO SIGN}" * 86):
        producer.refused(half(None, named={"half_id": wrong}), ID_REQUIRED, INVALID)
    for number in (Ulong(7), b"bytes"):
        producer.refused(half("1", named={"half_id": number}), INVALID, ID_REQUIRED)


IDS: tuple[Any, ...] = ("1", b"1", Ulong(1), UUID(int=1), "01", Ulong(49))
"""Half-ids that are equal as text or octets, and are six."""


@scenario("half.put/id-type", "half.put-id", "half.resolve-message", profile=HALVES)
def id_type(broker: Broker) -> None:
    """Half-ids are compared by type and value: a string, octets, a number and a UUID are four messages."""
    halves = Halves(broker)
    producer, consumer = halves.producer(), halves.consumer()
    producer.put(*[half(half_id, b"%d" % number) for number, half_id in enumerate(IDS)])
    for number, half_id in enumerate(IDS):
        producer.commit(half_id)
        delivery = halves.next(consumer)
        expect_equal("the body", b"%d" % number, body_of(delivery))
        expect_equal("x-opt-half-id", half_id, half_id_annotation(delivery))


@scenario("half.put/id-property", "half.put-id", profile=HALVES)
def id_property(broker: Broker) -> None:
    """The application property half_id counts before the message-id."""
    halves = Halves(broker)
    producer = halves.producer()
    producer.put(half("of the message", named={"half_id": "of its own"}))
    producer.conflict("of the message", "commit", UNKNOWN)
    producer.commit("of its own")
    producer.refused(half("of its own", b"another"), ID_CONFLICT)
    expect_left(broker, halves.queue, b"the body")


@scenario("half.put/settled", "half.put-settled", profile=HALVES)
def settled(broker: Broker) -> None:
    """Who does not wait for the outcome is refused: at the attach, or with the link at the transfer."""
    halves = Halves(broker)
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


@scenario("half.put/reserved", "half.put-reserved", "half.put-silence", profile=HALVES)
def reserved(broker: Broker) -> None:
    """Reserved names, a delivery time and sequence fields on a half message are refused, not dropped."""
    halves = Halves(broker)
    producer = halves.producer()
    for name in ("half_", "half_state", "half_first_check", "half_reason", "seq_stream", "seq_no"):
        producer.refused(half("1", named={name: 1}), NOT_ALLOWED)
    for name in ("x-opt-delivery-time", "x-opt-seq-stream", "x-opt-seq-no"):
        producer.refused(half("1", annotations={name: 1}), NOT_ALLOWED)
    producer.put(half("1", named={"halfway": "there"}, annotations={"x-opt-mine": 1}))
    producer.commit("1")
    expect_left(broker, halves.queue, b"the body")


@scenario("half.put/timers", "half.put-timers", "half.put-silence", profile=HALVES)
def timers(broker: Broker) -> None:
    """Times that are no numbers, are negative or exceed the group's maximum age are refused."""
    halves = Halves(broker)
    producer = halves.producer()
    for name in ("half_first_check_ms", "half_max_age_ms"):
        for wrong in (-1, "soon", 366 * 24 * 3_600_000, 1.5, b"1"):
            producer.refused(half("1", named={name: wrong}), INVALID)
    producer.conflict("1", "commit", UNKNOWN)
    producer.put(half("1", named={"half_first_check_ms": 10_000, "half_max_age_ms": 20_000}))
    producer.roll_back("1")

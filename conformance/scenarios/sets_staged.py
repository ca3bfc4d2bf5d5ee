"""Messages are staged in sets, and nobody sees them (docs/protocols/sets.md: stage)."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.halves import expect_capability
from amqp_broker.conformance.messages import (
    DELIVERY_ANNOTATIONS,
    bare_octets,
    data,
    header_of,
    split_sections,
)
from amqp_broker.conformance.outcomes import expect_equal
from amqp_broker.conformance.queues import body_of, expect_left
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.sets import (
    DECIDED,
    NOT_ALLOWED,
    SEALED,
    STALE,
    VOIDED,
    Sets,
    checksum,
    refusal,
)
from amqp_broker.frames import Header, Properties, Symbol, Target, encode_composite, encode_message


@scenario("set.stage/hidden", "set.hidden", "set.epoch")
def hidden(broker: Broker, sets: Sets) -> None:
    """Consumers and browsers see nothing before the commit, and all of it after."""
    one = sets.sealed("one", b"1", b"2")
    expect_left(broker, sets.queue)
    sets.commit(one)
    expect_left(broker, sets.queue, b"1", b"2", in_order=True)


@scenario("set.stage/octets", "set.bare", "set.checksum", "set.hidden")
def octets(broker: Broker, sets: Sets) -> None:
    """The bare message octet for octet; durable, without delivery annotations, which do not count."""
    rest = encode_message(
        message_annotations={Symbol("x-opt-mine"): "kept"},
        properties=Properties(message_id="m", subject="s"),
        application_properties={"color": "blue"},
        body=b"the body",
        footer={Symbol("x-opt-end"): 1},
    )
    hop = encode_message(delivery_annotations={Symbol("x-opt-hop"): 1}, body=b"")[: -len(data(b""))]
    link = sets.stager("one")
    sets.stage(link, encode_composite(Header(durable=False, priority=7)) + hop + rest)
    link.detach()
    sets.seal(("one", 1, checksum(rest)))
    sets.commit(("one", 1, checksum(rest)))
    (found,) = expect_left(broker, sets.queue, b"the body")
    expect_equal("the bare message", bare_octets(rest), bare_octets(found.payload))
    header = header_of(found.payload)
    expect_equal("durable and priority", (True, 7), (header.durable, getattr(header.priority, "value", 7)))
    codes = [code for code, _ in split_sections(found.payload)]
    expect_equal("whether delivery annotations came", False, DELIVERY_ANNOTATIONS in codes)


@scenario("set.stage/answer", "set.capability")
def answer(broker: Broker) -> None:
    """The attach reply says that this is a node of half messages."""
    attach = Sets(broker).stager("one").remote_attach
    expect_capability(attach, attach.target if attach and isinstance(attach.target, Target) else None)


@scenario("set.stage/destinations", "set.destinations", "set.checksum-all")
def destinations(broker: Broker, sets: Sets) -> None:
    """Two queues and three links; sealed with what is in all of them, in any order."""
    other = broker.queue("other")
    first, second, third = sets.stager("one"), sets.stager("one"), sets.stager("one", queue=other)
    payloads = [data(b"1"), data(b"2"), data(b"3")]
    for link, payload in zip((first, second, third), payloads, strict=True):
        sets.stage(link, payload)
        link.detach()
    winner = ("one", 3, checksum(*reversed(payloads)))
    sets.seal(winner)
    sets.commit(winner)
    expect_left(broker, sets.queue, b"1", b"2")
    expect_left(broker, other, b"3")


@scenario("set.stage/settled", "set.unsettled", "set.detached")
def settled(broker: Broker) -> None:
    """A link that sends settled is refused; a settled transfer ends the link, and stages nothing."""
    sets, other = Sets(broker), Sets(broker, "other")
    sets.refused("one", NOT_ALLOWED, snd_settle_mode=1)
    link = sets.stager("one")
    link.send(data(b"1"), settled=True)
    link.expect_detach(NOT_ALLOWED)
    expect_equal("what is staged", 0, other.status()["sets"][0]["count"])


@scenario("set.stage/refused", "set.refused-decided", "set.refused-stale", "set.refused-sealed")
def refused(sets: Sets) -> None:
    """For a decided epoch, for one that was passed over, and for a sealed set."""
    sets.commit(epoch=5)
    sets.refused("late", DECIDED, epoch=5)
    sets.refused("late", STALE, epoch=4)
    sets.sealed("one", b"1", epoch=6)
    sets.refused("one", SEALED, epoch=6)


@scenario("set.stage/ends", "set.detached", breaks="2.5-one-session")
def ends(broker: Broker) -> None:
    """Links to a sealed set when they send, to a voided or decided one at once."""
    for why in (SEALED, VOIDED, DECIDED):
        sets, stages = Sets(broker), Sets(broker, "stages")
        epoch = 1 + (SEALED, VOIDED, DECIDED).index(why)
        set_id = f"of-{epoch}"
        link = stages.stager(set_id, epoch)
        stages.stage(link, data(b"1"))
        winner = (set_id, 1, checksum(data(b"1")))
        if why == VOIDED:
            sets.void(set_id)
        elif why == DECIDED:
            sets.commit(epoch=epoch)
        else:
            sets.seal(winner, epoch)
            link.send(data(b"2"))
        link.expect_detach(why)
    expect_left(broker, sets.queue)


@scenario("set.stage/sequenced", "set.not-in-sets")
def sequenced(broker: Broker, sets: Sets) -> None:
    """A message with sequence fields is rejected; the link goes on."""
    link = sets.stager("one")
    bad = encode_message(application_properties={"seq_no": 1, "seq_id": 1, "seq_prev": 0}, body=b"bad")
    refusal(sets.answer(link.send(bad)), NOT_ALLOWED)
    sets.stage(link, data(b"1"))
    link.detach()
    winner = ("one", 1, checksum(data(b"1")))
    sets.seal(winner)
    sets.commit(winner)
    (found,) = expect_left(broker, sets.queue, b"1")
    expect_equal("the body", b"1", body_of(found))

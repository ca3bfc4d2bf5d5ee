"""The nodes of half messages: what an attach answers, and what is refused (half-messages: nodes)."""

import attrs

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Session
from amqp_broker.conformance.halves import (
    FOR_TESTS,
    NOT_ALLOWED,
    NOT_FOUND,
    Halves,
    expect_capability,
    half,
    refusal,
    resolution,
)
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.outcomes import NotApplicable, error_of, expect_equal
from amqp_broker.conformance.queues import body_of
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import EVERY_OUTCOME, anonymous_sender
from amqp_broker.frames import Accepted, Attach, Rejected, Released, Source


@scenario("half.nodes/senders", "half.nodes-put", "half.nodes-resolve", "half.nodes-attach")
def senders(halves: Halves) -> None:
    """The attach of a link that puts or resolves says half-messages, and half-version 1."""
    session = halves.session("producer")
    for address in (f"$half/{halves.group}/{halves.queue}", f"$half-resolve/{halves.group}"):
        link = session.sender(address, name=address[:100])
        attach = link.remote_attach
        expect_capability(attach, attach and attach.target)
        expect_equal("the address", address, getattr(attach and attach.target, "address", None))
        link.detach()


@scenario("half.nodes/checkers", "half.nodes-check", "half.check-attach", "half.nodes-attach")
def checkers(halves: Halves) -> None:
    """The attach of a link that is asked: move, released by default, all four outcomes."""
    session = halves.session("checker")
    for address in (f"$half-check/{halves.group}", f"$half-check/{halves.group}/by-outcome"):
        link = session.receiver(address, name=address[:100])
        source = link.attach.source
        expect_capability(link.remote_attach, source)
        assert isinstance(source, Source)
        expect_equal("the address", address, source.address)
        expect_equal("the distribution-mode", "move", str(source.distribution_mode))
        expect_equal("the default outcome", Released(), source.default_outcome)
        expect_equal("the outcomes", set(EVERY_OUTCOME), {str(one) for one in source.outcomes or ()})
        link.detach()


@scenario("half.nodes/parked", "half.nodes-parked", "half.nodes-attach")
def parked(halves: Halves) -> None:
    """Parked half messages are looked at by a copying link only."""
    session = halves.session("administrator")
    address = f"$half-parked/{halves.group}"
    for mode in ("move", None):
        source = Source(address=address, distribution_mode=mode)
        refusal(session, address, NOT_ALLOWED, receiver=True, source=source)
    source = Source(address=address, distribution_mode="copy")
    link = session.receiver(address, source=source, credit=1)
    assert link.remote_attach is not None and isinstance(link.attach.source, Source)
    expect_capability(link.remote_attach, link.attach.source)
    expect_equal("the distribution-mode", "copy", str(link.attach.source.distribution_mode))
    halves.silent(link)


@scenario("half.nodes/unknown", "half.nodes-unknown", "half.nodes-refusal", "half.nodes-group")
def unknown(halves: Halves) -> None:
    """An address that is none, or names no group: a null terminus, then detach with not-found."""
    session, group, queue = halves.session("producer"), halves.group, halves.queue
    for address in (
        "$half", f"$half/{group}", f"$half/{group}/", f"$half/ /{queue}", f"$half//{queue}",
        f"$half/{'g' * 65}/{queue}", f"$half/gr\N{LATIN SMALL LETTER O WITH DIAERESIS}up/{queue}",
        "$half-resolve", "$half-resolve/", f"$half-resolve/{group}/other",
    ):  # fmt: skip
        refusal(session, address, NOT_FOUND)
    refusal(session, f"$half-other/{group}", NOT_FOUND, "amqp:unauthorized-access")
    for address in (
        "$half-check", "$half-check/", f"$half-check/{group}/other", f"$half-check/{group}/",
        f"$half-check/{group}/by-outcome/", f"$half-check/{'g' * 65}",
    ):  # fmt: skip
        refusal(session, address, NOT_FOUND, receiver=True)
    session.peer.close()


@scenario("half.nodes/groups", "half.nodes-group", "half.nodes-first-use")
def groups(broker: Broker, halves: Halves) -> None:
    """A group has a name of up to 64 letters, digits, dots, underscores and hyphens, and is made on first
    use.
    """
    session = halves.session("producer")
    longest = FOR_TESTS + "Az09._-" + broker.settings.run_id + "g" * 64
    for group in (FOR_TESTS + broker.settings.run_id, longest[:64]):
        link = session.sender(f"$half-resolve/{group}", name=group)
        link.detach()


@scenario("half.nodes/directions", "half.nodes-put", "half.nodes-check")
def directions(halves: Halves) -> None:
    """Nobody receives where half messages are put or resolved, or sends to where the broker asks."""
    session, group = halves.session("producer"), halves.group
    for address in (f"$half-check/{group}", f"$half-check/{group}/by-outcome", f"$half-parked/{group}"):
        refusal(session, address, NOT_ALLOWED, NOT_FOUND)
    for address in (f"$half/{group}/{halves.queue}", f"$half-resolve/{group}"):
        refusal(session, address, NOT_ALLOWED, NOT_FOUND, receiver=True)


@scenario("half.nodes/destination", "half.nodes-put")
def destination(broker: Broker) -> None:
    """The destination is the rest of the address, and may contain slashes."""
    halves = Halves(broker, queue="a/b/by-outcome")
    producer, consumer = halves.producer(), halves.consumer()
    producer.put(half("1", b"there"))
    producer.commit("1")
    expect_equal("the body", b"there", body_of(halves.next(consumer)))


@scenario("half.nodes/anonymous-terminus", "half.nodes-anonymous")
def anonymous_terminus(halves: Halves) -> None:
    """Through the anonymous terminus, properties.to names the same nodes."""
    consumer = halves.consumer()
    session = halves.session("producer")
    relay = anonymous_sender(session, handle=2)
    relay.send(half("1", b"relayed", to=f"$half/{halves.group}/{halves.queue}"))
    relay.expect_outcome(Accepted)
    halves.silent(consumer)
    relay.send(half("2", to=f"$half-other/{halves.group}"))
    error_of(relay.expect_outcome(Rejected), NOT_FOUND, "amqp:unauthorized-access")
    relay.send(resolution("1", "commit", to=f"$half-resolve/{halves.group}"))
    relay.expect_outcome(Accepted)
    expect_equal("the body", b"relayed", body_of(halves.next(consumer)))


@scenario("half.nodes/destination-right", "half.nodes-put", "half.nodes-unknown")
def destination_right(broker: Broker, halves: Halves) -> None:
    """A destination that a sender could not have is refused under a group, too."""
    session = halves.session("producer")
    refusal(
        session, f"$half/{halves.group}/{broker.settings.unknown_address}", NOT_FOUND, "amqp:invalid-field"
    )


@scenario("half.nodes/rights", "half.nodes-refusal", "half.nodes-by-outcome")
def rights(broker: Broker, session: Session) -> None:
    """Without the right the answer is that for no such group; by-outcome needs the right to resolve, too."""
    queue = broker.queue()
    link = session.put_sender("$half-resolve/conformance-check-only", 2, "asks")
    attach: Attach = session.peer.expect_frame(Attach).performative
    if attach.target is not None:
        raise NotApplicable("this user has every right here (see second_broker.toml)")
    told = link.peer.expect_detach(NOT_FOUND).error
    session.receiver("$half-check/conformance-check-only", 3, "check-only").detach()
    errors = [
        told,
        refusal(session, f"$half/conformance-check-only/{queue}", NOT_FOUND),
        refusal(session, "$half-check/conformance-check-only/by-outcome", NOT_FOUND, receiver=True),
        refusal(session, f"$half/conformance-no-rights/{queue}", NOT_FOUND),
        refusal(session, "$half-check/conformance-no-rights", NOT_FOUND, receiver=True),
    ]
    words = {
        (error.description or "").replace("no-rights", "check-only") for error in errors if error is not None
    }
    expect_equal("how many different descriptions", 1, len(words))


@scenario("half.nodes/administrator", "half.nodes-parked", "half.nodes-refusal")
def administrator(broker: Broker) -> None:
    """Who may not administer the broker cannot look at what is parked: as if there were no such group."""
    address = broker.settings.address
    if address.user is None or "ANONYMOUS" not in broker.findings.mechanisms:
        raise NotApplicable("there is one user only")
    anonymous = attrs.evolve(broker.settings, address=attrs.evolve(address, user=None))
    nobody = Broker(anonymous, broker.scenario_id, broker.transcript)
    try:
        session = nobody.session()
        source = Source(address=f"$half-parked/{Halves(broker).group}", distribution_mode="copy")
        refusal(session, f"$half-parked/{Halves(broker).group}", NOT_FOUND, receiver=True, source=source)
    finally:
        nobody.discard()


@scenario("half.nodes/message-types", "half.nodes-types")
def message_types(broker: Broker) -> None:
    """A destination of type normal takes no half messages, one of type transaction nothing else."""
    prefix = broker.settings.address_prefix
    normal, halves_only = (f"{prefix}{kind}.{broker.container_id()}" for kind in ("normal", "halves"))
    halves = Halves(broker)
    session = halves.session("producer")
    session.put_sender(f"$half/{halves.group}/{normal}", 5, "normal")
    attach: Attach = session.peer.expect_frame(Attach).performative
    if attach.target is not None:
        session.sender(halves_only, 8, "ordinary-too")  # Unexpected where this one has its type
        raise NotApplicable("queues have no message types here (see second_broker.toml)")
    session.peer.expect_detach(NOT_ALLOWED)
    session.sender(normal, 6, "ordinary").put([data(b"ordinary")])
    refusal(session, halves_only, NOT_ALLOWED)
    producer = halves.producer("halves-only", halves_only)
    producer.put(half("1", b"half"))
    producer.commit("1")
    receiver = session.receiver(halves_only, 7, credit=1)
    expect_equal("the body", b"half", body_of(halves.next(receiver)))

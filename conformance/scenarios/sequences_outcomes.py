"""What a sender is told: outcomes and their info, ranges, and when (sequences: on the wire)."""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Sender
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.outcomes import (
    NotApplicable,
    Unexpected,
    expect,
    expect_equal,
    in_some_attempt,
)
from amqp_broker.conformance.queues import expect_left
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.sequences import (
    ACCEPTED,
    FULL,
    GAP,
    PATIENT,
    STALE,
    Place,
    body,
    chain,
    expect_told,
    info,
    placed,
    ranges,
    sender_on,
    standing,
    stream_sender,
)
from amqp_broker.conformance.transactions import TOO_MUCH, anonymous_sender, elsewhere
from amqp_broker.frames import Close, Detach, Disposition, End, Flow

MOST_OCTETS = 4 * 1024 * 1024
BOUNDED = "bounded"
"""Queues of second_broker.toml that take three messages."""


@scenario("seq.outcomes/gap", "seq.outcomes-gap")
def gap(broker: Broker) -> None:
    """A gap says the last accepted id and number and the expected prev, also in words."""
    sender = stream_sender(broker)
    expect_told(sender, [placed(place) for place in chain(1, 7, 3)], ACCEPTED * 7)
    (state,) = expect_told(sender, [placed((3, 9, 8))], [GAP])
    expect_equal("the info", {"seq-id": 3, "seq-no": 7, "expected-prev": 7}, info(state))
    if "7" not in (state.error.description or ""):
        raise Unexpected(f"expected the number 7 in the description, got {state.error.description!r}")
    (state,) = expect_told(sender, [placed((4, 9, 8))], [GAP])
    expect_equal("the info", {"seq-id": 3, "seq-no": 7, "expected-prev": 0}, info(state))
    (state,) = expect_told(sender, [placed((1, 2, 1), "new")], [GAP])
    expect_equal("the info", {"seq-id": 0, "seq-no": 0, "expected-prev": 0}, info(state))


@scenario("seq.outcomes/stale", "seq.outcomes-stale")
def stale(broker: Broker) -> None:
    """A stale message is told the current id and number."""
    sender = stream_sender(broker)
    expect_told(sender, [placed(place) for place in chain(1, 2, 8)], ACCEPTED * 2)
    (state,) = expect_told(sender, [placed((7, 1, 0))], [STALE])
    found = info(state)
    expect_equal("the info", (8, 2), (found.get("seq-id"), found.get("seq-no")))


@scenario("seq.outcomes/settled", "seq.outcomes-duplicate", "seq.outcomes-gap")
def settled(broker: Broker) -> None:
    """What is sent settled is judged too: a duplicate is discarded, for a gap the link ends."""
    sender = stream_sender(broker)
    for place in [*chain(1, 3), (1, 2, 1), (1, 5, 4)]:
        sender.send(placed(place), settled=True)
    sender.expect_detach(GAP)
    expect_left(broker, broker.queue(), b"1.1", b"1.2", b"1.3", in_order=True)


@scenario("seq.outcomes/no-room", "seq.outcomes-other")
def no_room(broker: Broker) -> None:
    """What a full node refuses does not move the stream: the same message is taken when there is room."""
    address = f"{broker.settings.address_prefix}{BOUNDED}.{broker.container_id()}"
    session = broker.session()
    sender_on(session, address, handle=5).detach()
    relay = anonymous_sender(session)

    def to(place: Place) -> bytes:
        properties = elsewhere(address, b"")[: -len(data(b""))]
        message = placed(place)
        return message[: -len(data(body(place)))] + properties + data(body(place))

    expect_told(relay, [to(place) for place in chain(1, 3)], ACCEPTED * 3)
    number = relay.send(to((1, 4, 3)))
    session.await_outcome(number)
    state = session.outcomes[number].state
    if getattr(getattr(state, "error", None), "condition", None) not in (FULL, TOO_MUCH):
        raise NotApplicable(f"the queue {address} has no bound of three messages")
    expect_equal("the stream", (1, 3), standing(sender_on(broker.session(container="asks"), address, "s")))
    receiver = broker.session(container="takes").receiver(address, credit=1)
    receiver.settle(receiver.receive())
    receiver.session.catch_up()
    expect_told(relay, [to((1, 4, 3))], ACCEPTED)


@scenario("seq.outcomes/too-large", "seq.outcomes-other", breaks="2.7.3-max-message-size")
def too_large(broker: Broker) -> None:
    """A message beyond max-message-size ends the link, and the stream is where it was."""
    sender = stream_sender(broker, "s")
    expect_told(sender, [placed(place, None) for place in chain(1, 2)], ACCEPTED * 2)
    limit = sender.attach.max_message_size
    if not limit or limit > MOST_OCTETS:
        raise NotApplicable(f"max-message-size is {limit}")
    sender.send(placed((1, 3, 2), None) + data(b"x" * limit), frame_octets=60_000)
    sender.expect_detach("amqp:link:message-size-exceeded")
    expect_equal("the stream", (1, 2), standing(stream_sender(broker, "s", container="again")))


@scenario("seq.told/ranges", "seq.told-ranges", "seq.outcomes-accept")
def ranges_of_runs(broker: Broker) -> None:
    """One write of fifteen messages: one disposition for each run of equal outcomes."""
    sender = stream_sender(broker)
    sender.await_credit(15)
    places = [*chain(1, 5), *chain(7, 11), *chain(6, 10)]
    with sender.peer.one_write():
        numbers = [sender.send(placed(place), wait=False) for place in places]
    for number in numbers:
        sender.session.await_outcome(number)
    expect_equal(
        "the dispositions",
        [(0, 4, "accepted"), (5, 9, GAP), (10, 14, "accepted")],
        ranges(sender.session),
    )


def _patient(broker: Broker, number: int = 0) -> Sender:
    """Returns a sender to a queue whose outcomes wait; each ``number`` has its own queue and connection."""
    name = f"q{number}"
    sender = stream_sender(broker, address=broker.queue(name, PATIENT), container=name)
    _waits(sender)
    return sender


def _waits(sender: Sender) -> None:
    """Sends the first message; not applicable where its outcome comes at once."""
    sender.send(placed((1, 1, 0)), batchable=True)
    try:
        sender.peer.expect_nothing(Disposition, within_s=0.15)
    except Unexpected as told:
        raise NotApplicable("outcomes do not wait there (ack_debounce_ms is 0)") from told


@scenario("seq.told/debounce", "seq.told-timer", waits=True)
def debounce(broker: Broker) -> None:
    """Outcomes wait until nothing comes for a while, and are one range then."""

    def attempt(number: int) -> None:
        sender = _patient(broker, number)
        for place in chain(2, 3):
            sender.send(placed(place), batchable=True)
            sender.peer.expect_nothing(Disposition, within_s=0.05)
        sender.peer.expect(Disposition, first=0, last=2, settled=True)

    in_some_attempt(attempt)


@scenario("seq.told/maximum", "seq.told-timer", waits=True)
def maximum(broker: Broker) -> None:
    """A steady sender is told every now and then, not only when it ends."""
    sender = _patient(broker)
    sender.peer.expect(Disposition, first=0, settled=True)
    number = 1
    while len(ranges(sender.session)) < 3:
        number += 1
        expect(number <= 60, "expected two more dispositions within three seconds")
        sender.send(placed((1, number, number - 1)), batchable=True)
        _pause(sender)
    expect_equal("outcomes", {"accepted"}, {told for _, _, told in ranges(sender.session)})


def _pause(sender: Sender) -> None:
    """A twentieth of a second, in which dispositions may come."""
    try:
        sender.peer.expect_frame(Disposition, timeout_s=0.05)
    except Unexpected:
        pass


@scenario("seq.told/not-batchable", "seq.told-flush")
def not_batchable(broker: Broker) -> None:
    """A message that is not batchable is answered at once, with what waited."""

    def attempt(number: int) -> None:
        sender = _patient(broker, number)
        sender.send(placed((1, 2, 1)), batchable=False)
        sender.peer.expect(Disposition, first=0, last=1, settled=True)

    in_some_attempt(attempt)


@scenario("seq.told/echo", "seq.told-flush")
def echo(broker: Broker) -> None:
    """A flow of the sender that asks for an answer, or says drain, brings what waited."""

    def attempt(number: int) -> None:
        sender = _patient(broker, number)
        for message, field in enumerate(("echo", "drain"), 2):
            fields: dict[str, Any] = {field: True}
            sender.session.flow(sender, **fields)
            sender.peer.expect(Disposition, skip=(Flow,), settled=True)
            sender.send(placed((1, message, message - 1)), batchable=True)
            sender.peer.expect_nothing(Disposition, within_s=0.1)

    in_some_attempt(attempt)


@scenario("seq.told/before-the-end", "seq.told-flush")
def before_the_end(broker: Broker) -> None:
    """Detach, end and close are answered after what waited was told."""
    for kind in (Detach, End, Close):
        name = kind.__name__
        sender = stream_sender(broker, address=broker.queue(name, PATIENT), container=name)
        _waits(sender)
        if kind is Detach:
            sender.session.put(Detach(handle=sender.handle, closed=True))
        elif kind is End:
            sender.session.put(End())
        else:
            sender.peer.put(Close())
        sender.peer.expect(Disposition, first=0, settled=True)
        sender.peer.expect(kind)

"""What is accepted of a sequenced stream, in what order (sequences: the rule)."""

import random

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.outcomes import expect_equal
from amqp_broker.conformance.queues import expect_left
from amqp_broker.conformance.scenario import Case, cases, scenario
from amqp_broker.conformance.sequences import (
    ACCEPTED,
    GAP,
    INVALID,
    STALE,
    Place,
    body,
    chain,
    expect_told,
    placed,
    standing,
    stated,
    states_of,
    stream_sender,
)

SEQ_ID_MAX = 2**64 - 1
SEQ_NO_MAX = 2**32 - 1
ORDERS = 60


@cases(
    Case("seq.rule/first-and-next", "seq.rule-first seq.rule-1 seq.rule-6",
         "A sequence begins with a prev of 0 and goes on where it was, also on another connection.",
         "1.1 1.2 1.3 1.4 1.5", (chain(1, 3), ACCEPTED * 3), (chain(4, 5), ACCEPTED * 2)),
    Case("seq.rule/without-its-start", "seq.rule-7",
         "The first message of all names one before it: a gap, and nothing is there.",
         "", (chain(2, 4), [GAP] * 3)),
    Case("seq.rule/duplicate", "seq.rule-4-5 seq.outcomes-duplicate",
         "A number that was reached, the last one or an older one, is accepted and discarded.",
         "1.1 1.2 1.3", ([*chain(1, 3), (1, 3, 2), (1, 1, 0)], ACCEPTED * 5),
         ([(1, 2, 1), (1, 3, 2), (1, 2, 0)], ACCEPTED * 3)),
    Case("seq.rule/chained-over", "seq.rule-1 seq.rule-2",
         "A sender names the last one that it kept, or an older one, as the one before.",
         "1.1 1.2 1.9 1.12 1.13", ([*chain(1, 2), (1, 9, 2), (1, 12, 5), (1, 13, 12)], ACCEPTED * 5)),
    Case("seq.rule/overlap", "seq.rule-4-5 seq.rule-1",
         "A resend that begins below what was reached brings what is above it.",
         "1.1 1.2 1.3 1.4 1.5 1.6", (chain(1, 4), ACCEPTED * 4), (chain(2, 6), ACCEPTED * 5)),
    Case("seq.rule/new-id", "seq.rule-6 seq.rule-8",
         "A higher id begins with a prev of 0, whatever its number; the old one goes on no more.",
         "1.1 1.2 5.7 5.8",
         ([*chain(1, 2), (5, 7, 0), (5, 8, 7), (1, 3, 2), (4, 1, 0)], ACCEPTED * 4 + [STALE] * 2)),
    Case("seq.rule/new-id-without-start", "seq.rule-7",
         "A higher id whose beginning is missing changes nothing: the old one goes on.",
         "1.1 1.2 1.3 2.1 2.2",
         ([*chain(1, 2), (2, 2, 1), (1, 3, 2), (2, 1, 0), (2, 2, 1)], [*ACCEPTED * 2, GAP, *ACCEPTED * 3])),
    Case("seq.rule/overtaken", "seq.rule-overtaken seq.rule-8",
         "What the old id has not brought when the new one begins is stale; what it has is known.",
         "1.1 1.2 2.1", ([*chain(1, 2), (2, 1, 0), *chain(1, 4)], ACCEPTED * 5 + [STALE] * 2)),
    Case("seq.rule/malformed", "seq.rule-0",
         "Id 0, number 0 or a prev that is not below the number is refused, and the stream stays where it "
         "is.",
         "1.1 1.2 1.3", (chain(1, 2), ACCEPTED * 2),
         ([(0, 1, 0), (1, 0, 0), (1, 3, 3), (1, 3, 9), (1, 3, 2)], [INVALID] * 4 + ACCEPTED)),
)
def _leaves(broker: Broker, left: str, *told: tuple[list[Place], list[str]]) -> None:
    """Sends runs on a connection of their own each, with these outcomes; then this is at the queue."""
    for places, expected in told:
        sender = stream_sender(broker)
        expect_told(sender, [placed(place) for place in places], expected)
        sender.peer.close()
    expect_left(broker, broker.queue(), *left.encode().split(), in_order=True)


@cases(
    Case("seq.rule/gap", "seq.rule-3 seq.outcomes-in-flight",
         "After a lost message everything in flight is refused; the resend from there is taken.",
         4, 10),
    Case("seq.rule/one-of-a-hundred", "seq.rule-3 seq.outcomes-in-flight",
         "Number 40 of 100 pipelined messages is lost: 39 are there, and a hundred after the resend.",
         40, 100),
)
def _one_lost(broker: Broker, lost: int, last: int) -> None:
    """Sends numbers 1 to ``last`` without ``lost``, and then all from there on again."""
    sender = stream_sender(broker)
    places = chain(1, last)
    payloads = [placed(place) for place in places]
    told = ACCEPTED * (lost - 1) + [GAP] * (last - lost)
    expect_told(sender, payloads[: lost - 1] + payloads[lost:], told)
    expect_told(sender, payloads[lost - 1 :], ACCEPTED * (last - lost + 1))
    expect_left(broker, broker.queue(), *[body(place) for place in places], in_order=True)


@scenario("seq.rule/all-again", "seq.rule-4-5", "seq.fields-names")
def all_again(broker: Broker) -> None:
    """Who cannot read the attach reply, as JMS, sends everything again in application properties."""
    sender = stream_sender(broker)
    expect_told(sender, [stated(place) for place in chain(1, 5)], ACCEPTED * 5)
    sender.peer.drop()
    again = stream_sender(broker)
    expect_told(again, [stated(place) for place in chain(1, 8)], ACCEPTED * 8)
    expect_left(broker, broker.queue(), *[body(place) for place in chain(1, 8)], in_order=True)


@scenario("seq.rule/former-ids", "seq.rule-8", "seq.links-remembered")
def former_ids(broker: Broker) -> None:
    """Late duplicates of the last eight ids are accepted and discarded, those of older ones are stale."""
    sender = stream_sender(broker)
    for seq_id in range(1, 11):
        expect_told(sender, [placed(place) for place in chain(1, 2, seq_id)], ACCEPTED * 2)
    late = [placed((seq_id, 2, 1)) for seq_id in range(2, 11)]
    expect_told(sender, late, ACCEPTED * 9)
    expect_told(sender, [placed((2, 3, 2)), placed((1, 2, 1))], [STALE] * 2)


@scenario("seq.rule/largest", "seq.rule-6", "seq.rule-4-5")
def largest(broker: Broker) -> None:
    """The last number of the last id is taken, and comes once."""
    last = (SEQ_ID_MAX, SEQ_NO_MAX, 0)
    sender = stream_sender(broker)
    expect_told(sender, [placed(last), placed(last)], ACCEPTED * 2)
    sender.peer.close()
    expect_equal("the stream", last[:2], standing(stream_sender(broker, "s")))
    expect_left(broker, broker.queue(), body(last))


@scenario("seq.rule/arrival-orders", "seq.rule-on-acceptance", "seq.rule-3", "seq.rule-8")
def arrival_orders(broker: Broker) -> None:
    """Whatever comes of a stream of three and then one of two, in any order: after a resend of all each
    message is there once and in order.
    """
    chance = random.Random(20_261_120)
    messages = [*chain(1, 3), *chain(1, 2, 2)]
    sender = stream_sender(broker)
    left: list[bytes] = []
    for number in range(ORDERS):
        stream = f"s{number}"
        order = chance.choices(messages[:3], k=chance.randint(1, 6))
        states_of(sender, [placed(place, stream) for place in order])
        states_of(sender, [placed(place, stream) for place in messages[:3]])
        states_of(sender, [placed(place, stream) for place in chance.choices(messages, k=3)])
        expect_told(sender, [placed(place, stream) for place in chain(1, 2, 2)], ACCEPTED * 2)
        left += [body(place) for place in messages]
    expect_left(broker, broker.queue(), *left, in_order=True)

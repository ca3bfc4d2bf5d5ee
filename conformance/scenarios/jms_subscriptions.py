"""What JMS programs need of selectors and subscriptions (docs/protocols/jms.md)."""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver, Session
from amqp_broker.conformance.jms import (
    DURABLE,
    GLOBAL,
    NO_LOCAL,
    NO_LOCAL_CODE,
    SELECTOR,
    SELECTOR_CODE,
    SHARED,
    SHARED_SUBS,
    TOPIC,
    bodies_of,
    drained,
    expect_bodies,
    no_local,
    publish,
    require_offered,
    selecting,
    selector,
    share,
    source,
    target,
)
from amqp_broker.conformance.messages import APPLICATION_PROPERTIES, data, section
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, expect, expect_equal
from amqp_broker.conformance.queues import reader
from amqp_broker.conformance.scenario import Case, cases, scenario
from amqp_broker.conformance.transcript import describe_value
from amqp_broker.frames import (
    Attach,
    Header,
    Long,
    Properties,
    Released,
    Source,
    Symbol,
    Ulong,
    encode_composite,
)

RED = section(APPLICATION_PROPERTIES, {"colour": "red"})
BLUE = section(APPLICATION_PROPERTIES, {"colour": "blue"})


@cases(
    Case("jms.selector/symbol", "jms.selector-symbol jms.selector-stays",
         "A selector by its symbol is in the broker's attach, and what it does not match is for others.",
         SELECTOR),
    Case("jms.selector/code", "jms.selector-code jms.selector-stays",
         "A selector by its number is in the broker's attach, and what it does not match is for others.",
         SELECTOR_CODE),
)
def _selected(broker: Broker, descriptor: Symbol | Ulong) -> None:
    session = broker.session()
    receiver = selecting(session, broker.queue(), selector("colour = 'red'", descriptor))
    target(session, broker.queue()).put([RED + data(b"1"), BLUE + data(b"2"), data(b"3"), RED + data(b"4")])
    expect_bodies(receiver, b"1", b"4")
    expect_bodies(reader(broker, broker.queue()), b"2", b"3")


_RED_ONE = {"weight": Long(3), "price": 2.5, "new": True, "name": "50%"}
_ONE = (
    encode_composite(Header(durable=True, priority=9)),
    encode_composite(Properties(message_id="ID:1", correlation_id="c-1", subject="type", group_id="g")),
    section(APPLICATION_PROPERTIES, {"colour": "red", **_RED_ONE}),
)
_TWO = (
    encode_composite(Header(priority=1)),
    encode_composite(Properties(message_id="ID:2", correlation_id="c-2", subject="other")),
    section(APPLICATION_PROPERTIES, {"colour": "blue", "weight": Long(7), "new": False, "name": "fifty"}),
)
_LANGUAGE = {
    "colour = 'red'": b"1", "colour <> 'red'": b"2", "weight > 3": b"2", "weight >= 3": b"12",
    "weight < 7 AND new": b"1", "weight = 3 OR weight = 7": b"12", "NOT new": b"2", "new = TRUE": b"1",
    "weight BETWEEN 2 AND 5": b"1", "weight NOT BETWEEN 2 AND 5": b"2",
    "colour IN ('red', 'green')": b"1", "colour NOT IN ('red', 'green')": b"2",
    "colour LIKE 'r_d'": b"1", "colour LIKE '%e%'": b"12", "name LIKE '50!%' ESCAPE '!'": b"1",
    "price IS NULL": b"2", "price IS NOT NULL": b"1", "weight * 2 + 1 = 7": b"1", "-weight / 7 = -1": b"2",
    "(weight = 3 OR new) AND price > 2": b"1",
    "JMSCorrelationID = 'c-1'": b"1", "JMSMessageID = 'ID:2'": b"2", "JMSType = 'type'": b"1",
    "JMSPriority > 4": b"1", "JMSDeliveryMode = 'PERSISTENT'": b"1", "JMSXGroupID = 'g'": b"1",
}
_UNKNOWN = {
    "price = 2.5": b"1", "price <> 1": b"1", "NOT (price = 1)": b"1", "price > 1 OR colour = 'blue'": b"12",
    "nothing = 1": b"", "NOT (nothing = 1)": b"", "nothing = nothing": b"", "nothing NOT IN ('a')": b"",
    "nothing NOT LIKE 'a'": b"", "nothing IS NULL": b"12", "nothing = 1 OR weight = 3": b"1",
    "JMSXGroupID = 'g' OR NOT (JMSXGroupID = 'g')": b"1",
}  # fmt: skip


@cases(
    Case("jms.selector/language", "jms.selector-language", "What each selector matches of two messages.",
         _LANGUAGE),
    Case("jms.selector/unknown", "jms.selector-unknown",
         "What a message does not have makes a selector unknown, which does not match.", _UNKNOWN),
)
def _matches(broker: Broker, selectors: dict[str, bytes]) -> None:
    session = broker.session()
    target(session, broker.queue()).put([b"".join(_ONE) + data(b"1"), b"".join(_TWO) + data(b"2")])
    for words, expected in selectors.items():
        receiver = selecting(session, broker.queue(), selector(words))
        found = drained(receiver)
        expect_equal(words, expected, b"".join(bodies_of(found)))
        receiver.settle(found, Released())
        receiver.detach()


@scenario("jms.selector/invalid", "jms.selector-invalid")
def invalid(broker: Broker, session: Session) -> None:
    """Texts that are no selectors refuse the link with invalid-field, and the session lives on."""
    for words in ("colour = ", "= 'red'", "colour LIKE red", "colour BETWEEN 1", "(colour = 'red'", "1 +"):
        wished = Source(address=broker.queue(), filter=selector(words))
        link = session.put_receiver(None, source=wished)
        session.peer.expect(Attach, name=link.name)
        if link.remote_terminus is not None:
            filters = link.remote_terminus.filter
            expect(not filters, f"the broker claims the filter {describe_value(filters)}")
            raise NotApplicable("the broker has no selectors")
        link.expect_detach("amqp:invalid-field", skip=())
    session.sender(broker.queue()).put([data(b"the session lives")])
    session.peer.close()


@scenario("jms.selector/subscription", "jms.selector-subscription")
def of_a_subscription(broker: Broker, session: Session) -> None:
    """A subscriber with a selector gets what matches, another one all."""
    chosen = selecting(session, broker.queue(), selector("colour = 'red'"), TOPIC)
    every = source(session, broker.queue(), TOPIC)
    publish(broker, broker.queue(), RED + data(b"1"), BLUE + data(b"2"))
    expect_bodies(chosen, b"1")
    expect_bodies(every, b"1", b"2")


@scenario("jms.subscription/volatile", "jms.subscription-volatile")
def volatile(broker: Broker, session: Session) -> None:
    """A subscriber gets what is sent while it is there; nothing is kept for it before or between."""
    target(session, broker.queue(), TOPIC).put([data(b"before")])
    first = source(session, broker.queue(), TOPIC, name="me")
    publish(broker, broker.queue(), data(b"1"))
    expect_bodies(first, b"1")
    first.detach()
    publish(broker, broker.queue(), data(b"between"), container="between")
    again = source(session, broker.queue(), TOPIC, name="me")
    publish(broker, broker.queue(), data(b"2"), container="later")
    expect_bodies(again, b"2")


def durable(session: Session, address: str, *capabilities: str, name: str = "sub", **fields: Any) -> Receiver:
    """A durable subscriber; not applicable where the broker's source is none."""
    link = source(session, address, TOPIC, *capabilities, name=name, **DURABLE, **fields)
    held: Any = link.attach.source
    if not held.durable:
        raise NotApplicable(f"the broker's source is not durable: {describe_value(held)}")
    expect_equal("the expiry-policy of a durable source", "never", str(held.expiry_policy))
    return link


def _leave(link: Receiver) -> None:
    link.detach(closed=False)
    link.peer.close()


def _close_connection(link: Receiver) -> None:
    link.peer.close()


def _drop(link: Receiver) -> None:
    link.peer.drop()


@cases(
    Case("jms.subscription/durable-detached", "jms.subscription-durable jms.subscription-kept",
         "A durable subscription that was detached keeps what is sent meanwhile.", _leave),
    Case("jms.subscription/durable-closed", "jms.subscription-durable jms.subscription-kept",
         "A durable subscription whose connection was closed keeps what is sent meanwhile.",
         _close_connection),
    Case("jms.subscription/durable-lost", "jms.subscription-durable jms.subscription-kept",
         "A durable subscription whose connection was lost keeps what is sent meanwhile.", _drop),
)
def _kept(broker: Broker, end: Any) -> None:
    end(durable(broker.session(container=""), broker.queue()))
    stranger = durable(broker.session(container="stranger"), broker.queue())
    publish(broker, broker.queue(), data(b"1"), data(b"2"))
    expect_bodies(stranger, b"1", b"2")
    expect_bodies(durable(broker.session(container=""), broker.queue()), b"1", b"2")


def _look_up(session: Session, name: str, **fields: Any) -> Receiver:
    """A link without a source: who has a durable subscription by this name finds it."""
    link = session.put_receiver(None, 20, name, source=None, **fields)
    session.peer.expect(Attach, name=name)
    return link


@scenario("jms.subscription/unsubscribe", "jms.subscription-lookup", "jms.subscription-unsubscribe",
          "jms.subscription-not-found")  # fmt: skip
def unsubscribe(broker: Broker) -> None:
    """A link without a source finds the subscription; its close ends it; another one is refused."""
    _leave(durable(broker.session(container=""), broker.queue()))
    publish(broker, broker.queue(), data(b"lost"))
    session = broker.session(container="")
    link = _look_up(session, "sub")
    found = link.remote_terminus
    if found is None:
        raise Unexpected(f"not found: {describe_value(session.peer.expect_detach().error)}")
    expect_equal("address and durability", (broker.queue(), True), (found.address, bool(found.durable)))
    link.detach()
    late = _look_up(session, "sub")
    expect(late.remote_terminus is None, f"it is still there: {describe_value(late.remote_terminus)}")
    late.expect_detach("amqp:not-found", skip=())
    expect_bodies(durable(broker.session(container=""), broker.queue()))


def _sharing(
    broker: Broker, container: str, *capabilities: str, name: str = "sub|1", lasting: bool = False
) -> Receiver:
    """One consumer of a shared subscription, on a connection of its own."""
    session = broker.session(container=container)
    require_offered(session, SHARED_SUBS)
    if lasting:
        return durable(session, broker.queue(), SHARED, *capabilities, name=name)
    return source(session, broker.queue(), TOPIC, SHARED, *capabilities, name=name)


@cases(
    Case("jms.subscription/shared", "jms.subscription-shared jms.subscription-shared-ends",
         "Two consumers share what comes; the last one takes the subscription with it.", lasting=False),
    Case("jms.subscription/shared-durable", "jms.subscription-shared jms.subscription-shared-durable",
         "Two consumers share what comes; what comes when both are gone is kept.", lasting=True),
)
def _share(broker: Broker, lasting: bool) -> None:
    first = _sharing(broker, "", lasting=lasting)
    second = source(
        first.peer.begin(), broker.queue(), TOPIC, SHARED, name="sub|2", **(DURABLE if lasting else {})
    )
    alone = source(broker.session(container="alone"), broker.queue(), TOPIC)
    for link in (first, second):
        link.flow(2)
    four = [b"%d" % number for number in range(4)]
    publish(broker, broker.queue(), *(data(each) for each in four))
    got = share(first, second)
    expect_equal("what the two got", four, sorted(bodies_of(got[0] + got[1])))
    expect_bodies(alone, *four)
    for link, deliveries in zip((first, second), got, strict=True):
        link.settle(deliveries)
        link.detach(closed=not lasting)
    publish(broker, broker.queue(), data(b"nobody is there"), container="later")
    again = _sharing(broker, "", name="sub|3", lasting=lasting)
    expect_bodies(again, *([b"nobody is there"] if lasting else []))


@cases(
    Case("jms.subscription/global", "jms.subscription-global",
         "With global two containers share a subscription.", GLOBAL, each=1),
    Case("jms.subscription/of-one-container", "jms.subscription-global",
         "Without global two containers have two subscriptions of one name.", each=2),
)
def _of_containers(broker: Broker, *capabilities: str, each: int) -> None:
    names = ("sub|global-volatile1", "sub|global-volatile2") if capabilities else ("sub|volatile1",) * 2
    links = [
        _sharing(broker, f"container-{at}", *capabilities, name=name) for at, name in enumerate(names)
    ]
    for link in links:
        link.flow(each)
    publish(broker, broker.queue(), data(b"1"), data(b"2"))
    got = sorted(body for link in links for body in bodies_of(link.take(each)))
    expect_equal("what came", sorted([b"1", b"2"] * each), got)


@cases(
    Case("jms.subscription/no-local", "jms.subscription-no-local",
         "A subscriber that is not local does not get what its container sends.", NO_LOCAL),
    Case("jms.subscription/no-local-code", "jms.subscription-no-local",
         "The filter may be named by its number.", NO_LOCAL_CODE),
)
def _local(broker: Broker, descriptor: Symbol | Ulong) -> None:
    session = broker.session()
    strict = selecting(session, broker.queue(), no_local(descriptor), TOPIC)
    every = source(session, broker.queue(), TOPIC)
    target(session, broker.queue(), TOPIC).put([data(b"own")])
    publish(broker, broker.queue(), data(b"of another"))
    expect_bodies(strict, b"of another")
    expect_bodies(every, b"own", b"of another")

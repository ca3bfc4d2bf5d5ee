"""The journal: each event is a message, in the order of the commits."""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.outcomes import expect_equal
from amqp_broker.conformance.retention import PROFILE, asker, offset_of, plain, require_events
from amqp_broker.conformance.scenario import scenario
from amqp_broker.frames import Accepted, Described, Message, Source, Symbol, Ulong

TOLD = "told"
"""Queues of second_broker.toml that retain, and of which the journal tells."""


def _event(reader: Receiver, address: str) -> dict[str, Any]:
    """Returns the next event of one queue: other scenarios have theirs in the same log."""
    while True:
        delivery = reader.receive()
        message = Message(delivery.payload)
        fields: dict[str, Any] = plain(message.body_sections()[0].value)
        subject = message.properties.subject if message.properties else None
        expect_equal("subject, lsn", (subject, offset_of(delivery)), (fields["type"], fields["lsn"]))
        if fields.get("address") == address:
            return fields


@scenario("ret.events/messages", "ret.event", "ret.events-read", profile=PROFILE)
def messages(broker: Broker) -> None:
    """A message comes, is delivered and accepted: put, deliver, settle, each with its fields."""
    session, watching = broker.session(), broker.session(container="watching")
    require_events(watching)
    address = broker.queue(kind=TOLD)
    begin = Described(Symbol("rabbitmq:stream-offset-spec"), "next")
    reader = watching.receiver(
        None, credit=1_000_000, source=Source(address="$events", filter={"x": begin}), snd_settle_mode=1
    )
    watching.flow(incoming_window=1_000_000)
    sender = session.sender(address)
    sender.put([data(b"one")])
    consumer = session.receiver(address, 9, credit=1)
    consumer.settle(consumer.receive(), Accepted())
    expected = [("put", 0, None), ("deliver", 0, None), ("settle", 0, "accepted")]
    found = [_event(reader, address) for _ in expected]
    told = [(each["type"], each.get("offset"), each.get("outcome")) for each in found]
    expect_equal("events", sorted(expected), sorted(told, key=str))
    expect_equal("lsn", sorted(each["lsn"] for each in found), [each["lsn"] for each in found])


@scenario("ret.events/requests", "ret.events-read", "ret.describe", profile=PROFILE)
def requests(broker: Broker) -> None:
    """$events is described first, and has cursors."""
    questions = asker(broker)
    require_events(questions.session)
    first = questions.ask("describe")["nodes"][0]
    expect_equal("the first", "$events", first["address"])
    name = broker.queue("cursor")
    found = questions.ask("hold", cursor=name, start={"$events": Ulong(first["next"])})
    expect_equal("held", {"$events": first["next"]}, found["positions"])
    questions.ask("forget", cursor=name)

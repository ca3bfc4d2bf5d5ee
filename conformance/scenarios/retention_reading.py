"""Reading by offset: where it begins, what comes, ranges, and what is refused; logs, and the journal."""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver, Sender, Session
from amqp_broker.conformance.halves import Halves, half
from amqp_broker.conformance.messages import (
    APPLICATION_PROPERTIES,
    FOOTER,
    MESSAGE_ANNOTATIONS,
    bare_octets,
    data,
    header_of,
    info_of,
    map_of,
    section,
    split_sections,
)
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, expect, expect_equal
from amqp_broker.conformance.queues import body_of
from amqp_broker.conformance.retention import (
    BEYOND,
    BRIEF,
    CURSOR,
    DROPPED,
    INVALID,
    NOT_ALLOWED,
    OFFSET_SPEC,
    UNTIL,
    Kept,
    asker,
    consume,
    expect_offsets,
    expect_refused,
    expect_settled,
    filled,
    offset_of,
    properties_of_link,
    reader_on,
    require_events,
    source_of,
)
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import Controller, post
from amqp_broker.frames import (
    Accepted,
    Attach,
    Described,
    Detach,
    Header,
    Message,
    Modified,
    Released,
    Source,
    Symbol,
    Target,
    Timestamp,
    Ulong,
    encode_composite,
    plain_value,
)


@scenario("ret.reading/starts", "ret.spec-first", "ret.spec-last", "ret.spec-next", "ret.spec-offset")
def starts(broker: Broker) -> None:
    """First, last, next, an offset, and one above the next, which waits; whether they were settled or not."""
    kept = filled(broker, 10)
    consume(kept.session, kept.address, 5)
    readers = {}
    for handle, (start, begins) in enumerate(
        [("first", 0), ("last", 9), ("next", 10), (4, 4), (12, 12), (Symbol("first"), 0)], 1
    ):
        readers[handle] = (reader_on(kept.session, kept.address, start, handle=handle), begins)
    kept.put(b"10", b"11", b"12")
    for reader, begins in readers.values():
        reader.flow(20)
        expect_offsets(reader, range(begins, 13))


@scenario("ret.reading/time", "ret.spec-time", "ret.annotations")
def time(broker: Broker) -> None:
    """The time of a message leads to it, an earlier one to the first, a later one to what comes."""
    kept = filled(broker, 3)
    (last,) = expect_offsets(reader_on(kept.session, kept.address, "last", credit=1), [2])
    at = map_of(last.payload, MESSAGE_ANNOTATIONS).get("x-opt-enqueued-time")
    if not isinstance(at, Timestamp):
        raise Unexpected(f"x-opt-enqueued-time: expected a timestamp, got {at!r}")
    expect_offsets(reader_on(kept.session, kept.address, Timestamp(0), handle=2, credit=1), [0])
    later = reader_on(kept.session, kept.address, Timestamp(at.value + 3_600_000), handle=3, credit=5)
    later.expect_empty()
    kept.put(b"3")
    expect_offsets(later, [3])


@scenario("ret.reading/answer", "ret.answer", "ret.mode")
def answer(broker: Broker) -> None:
    """The filters in effect, and no others; mode copy; where it begins and what there is."""
    kept = filled(broker, 5)
    ours = Described(Symbol(OFFSET_SPEC), Ulong(3))
    source = Source(address=kept.address, filter={"where": ours})
    reader = kept.session.receiver(None, source=source)
    found = reader.attach.source
    assert isinstance(found, Source)
    expect_equal("filter and mode", ({"where": ours}, "copy"), (found.filter, found.distribution_mode))
    told = properties_of_link(reader)
    expect_equal("first, next, start", (0, 5, 3), tuple(told.get(key) for key in ("first", "next", "start")))
    expect_equal("a store-id", True, isinstance(told.get("store_id"), str) and bool(told["store_id"]))


@scenario("ret.reading/octets", "ret.annotations", "ret.octets")
def octets(broker: Broker) -> None:
    """The bare message and the footer are what was sent, annotations are added to those that were there."""
    kept = filled(broker, 0)
    payload = (
        section(MESSAGE_ANNOTATIONS, {Symbol("x-colour"): "red", Symbol("x-stream-offset"): Ulong(77)})
        + section(APPLICATION_PROPERTIES, {"weight": 3, "name": "x" * 300})
        + data(b"a" * 300)
        + data(b"b")
        + section(FOOTER, {Symbol("sum"): "1"})
    )
    kept.sender.put([payload])
    (found,) = expect_offsets(reader_on(kept.session, kept.address, "first", credit=1), [0])
    expect_equal("the bare message", bare_octets(payload), bare_octets(found.payload))
    footers = [octets for code, octets in split_sections(found.payload) if code == FOOTER]
    expect_equal("the footer", [section(FOOTER, {Symbol("sum"): "1"})], footers)
    expect_equal("x-colour", "red", map_of(found.payload, MESSAGE_ANNOTATIONS).get("x-colour"))
    header = header_of(found.payload)
    expect_equal("durable and ttl", (True, None), (header.durable, header.ttl))


@scenario("ret.reading/nothing-taken", "ret.nothing-taken")
def nothing_taken(broker: Broker) -> None:
    """Whatever outcome a copy gets, it is settled, and a consumer gets the messages all the same."""
    kept = filled(broker, 4)
    reader = reader_on(kept.session, kept.address, "first", credit=4)
    deliveries = expect_offsets(reader, range(4))
    for delivery, outcome in zip(
        deliveries, (Accepted(), Released(), Modified(delivery_failed=True), None), strict=True
    ):
        if outcome is not None:
            reader.settle(delivery, outcome, settled=False)
    expect_settled(kept.session, deliveries[:3])
    consume(kept.session, kept.address, 4)


@scenario("ret.reading/tailing", "ret.new")
def tailing(broker: Broker) -> None:
    """Messages come as they become available, and a drain is answered when there are no more."""
    kept = filled(broker, 2)
    reader = reader_on(kept.session, kept.address, "first", credit=10)
    expect_offsets(reader, [0, 1])
    for number in range(2, 5):
        kept.put(b"%d" % number)
        expect_offsets(reader, [number])
    reader.flow(10, drain=True)
    while not (kept.session.remote_flow and kept.session.remote_flow.link_credit == 0):
        kept.session.peer.expect_frame(object)


@scenario("ret.reading/dense", "ret.dense", "ret.every-message")
def dense(broker: Broker) -> None:
    """Messages that are not durable, pre-settled ones and rejected ones leave no hole."""
    kept = filled(broker, 1)
    kept.sender.send(data(b"settled"), settled=True)
    kept.put(b"last")
    consume(kept.session, kept.address, 3)
    expect_offsets(reader_on(kept.session, kept.address, "first", credit=3), [0, 1, 2])


@scenario("ret.range/exact", "ret.until", "ret.range-over")
def exact(broker: Broker) -> None:
    """From 3 until 7: four messages, settled, and nothing more although more come."""
    kept = filled(broker, 10)
    reader = reader_on(kept.session, kept.address, 3, until=7, settled=True, credit=50)
    expect_offsets(reader, range(3, 7))
    kept.put(b"more")
    reader.expect_empty()


@scenario("ret.range/empty", "ret.until")
def empty(broker: Broker) -> None:
    """A range without messages, also at the end of what there is, is accepted and yields none."""
    kept = filled(broker, 3)
    for handle, at in enumerate((0, 2, 3), 1):
        reader_on(kept.session, kept.address, at, until=at, handle=handle, credit=5).expect_empty(0.1)


@scenario("ret.range/beyond", "ret.beyond")
def beyond(broker: Broker) -> None:
    """A range above what there is says what there is."""
    kept = filled(broker, 3)
    error = expect_refused(kept.session, BEYOND, source_of(kept.address, start=1, until=4))
    expected = {"address": kept.address, "asked": 4, "first": 0, "next": 3}
    expect_equal("info", expected, info_of(error))


@scenario("ret.range/dropped", "ret.dropped", "ret.kept-bytes", "ret.below-first", waits=True)
def dropped(broker: Broker, session: Session) -> None:
    """What retention has dropped is refused as a range, and passed over without `until`."""
    address = broker.queue(kind=BRIEF)
    kept = Kept(session, address, session.sender(address))
    questions = asker(broker)
    first = 0
    for _ in range(40):
        kept.put(*[b"x" * 4_000 for _ in range(10)])
        consume(session, address, 10)
        first = questions.ask("describe", address=address)["nodes"][0]["first"]
        if first:
            break
        session.receiver(address, 30, "idle", credit=1).expect_empty(0.3)
        session.put(Detach(handle=30, closed=True))
        session.peer.expect(Detach)
    expect(first, "nothing was dropped, although more is there than is to be kept")
    error = expect_refused(session, DROPPED, source_of(address, start=0, until=first + 1))
    told = info_of(error)
    expect_equal("asked and address", (0, address), (told.get("asked"), told.get("address")))
    reader = reader_on(session, address, 0, credit=1)
    begins = properties_of_link(reader)["start"]
    expect_equal("it begins at the first that is there", True, begins >= first)
    expect_offsets(reader, [begins])


@scenario("ret.refusals/filters", "ret.invalid", "ret.mode")
def refused_filters(broker: Broker) -> None:
    """Words, offsets, ranges and cursor names that are none; and the mode move."""
    kept = filled(broker, 3)
    for name, value in (
        (OFFSET_SPEC, "middle"), (OFFSET_SPEC, -1), (OFFSET_SPEC, True), (OFFSET_SPEC, b"first"),
        (UNTIL, "last"), (CURSOR, ""), (CURSOR, "x" * 256), (CURSOR, Ulong(1)),
    ):  # fmt: skip
        wrong = {name: Described(Symbol(name), value)}
        expect_refused(kept.session, INVALID, Source(address=kept.address, filter=wrong))
    expect_refused(kept.session, INVALID, source_of(kept.address, start=2, until=1))
    expect_refused(kept.session, NOT_ALLOWED, source_of(kept.address, "move", start="first"))


@scenario("ret.refusals/not-retaining", "ret.not-allowed")
def not_retaining(broker: Broker, session: Session) -> None:
    """A queue that retains nothing refuses, and says what to configure."""
    session.sender(broker.queue("plain"), 3)
    error = expect_refused(session, NOT_ALLOWED, source_of(broker.queue("plain"), start="first"))
    expect_equal("it names retention_ms", True, "retention_ms" in (error.description or ""))


@scenario("ret.reading/browsing", "ret.like-any")
def browsing(broker: Broker) -> None:
    """Distribution-mode copy without these filters shows what is available, as at any queue."""
    kept = filled(broker, 4)
    consume(kept.session, kept.address, 1)
    source = Source(address=kept.address, distribution_mode="copy")
    reader = kept.session.receiver(None, source=source, credit=10)
    bodies = [split_sections(reader.receive().payload)[-1][1] for _ in range(3)]
    expect_equal("bodies", [data(b"1"), data(b"2"), data(b"3")], bodies)
    reader.expect_empty(0.1)
    assert isinstance(reader.remote_attach, Attach)


LOG = "log"
QUEUE = "queue"


def _log(broker: Broker) -> tuple[Session, str, Sender]:
    """Returns a session, the address of a log by the configuration of second_broker.toml, and a sender."""
    session = broker.session()
    address = broker.queue(kind=LOG)
    sender = session.sender(None, target=Target(address=address, capabilities=(QUEUE,)))
    if LOG not in _capabilities(sender):
        raise NotApplicable(f"{address} is no log")
    return session, address, sender


def _capabilities(sender: Sender) -> list[str]:
    target = sender.attach.target
    return [str(one) for one in getattr(target, "capabilities", None) or ()]


@scenario("ret.logs/archived", "ret.log-archives", "ret.log-ttl")
def archived(broker: Broker) -> None:
    """Plain messages, a committed transaction and a half message are there for readers, in order; what is
    rolled back is not; a ttl of a millisecond has no effect.
    """
    session, address, sender = _log(broker)
    tail = reader_on(session, address, "next", handle=1, credit=20)
    brief = encode_composite(Header(ttl=1))
    sender.put([brief + data(b"plain")])
    controller = Controller(broker)
    posting = controller.session.sender(address, 3)
    for body, ends in ((b"committed", controller.commit), (b"never", controller.roll_back)):
        txn = controller.declare()
        post(posting, txn, body)
        ends(txn)
    producer = Halves(broker).producer(destination=address)
    producer.put(half(broker.container_id("half"), b"half", header=Header(ttl=1)))
    producer.commit(broker.container_id("half"))
    found = expect_offsets(tail, range(3))
    expect_equal("bodies", [b"plain", b"committed", b"half"], [body_of(each) for each in found])
    expect_equal("ttl", [None] * 3, [header_of(each.payload).ttl for each in found])
    expect_offsets(reader_on(session, address, 0, handle=2, until=3, credit=10), range(3))


@scenario("ret.logs/consumer", "ret.log-consumer")
def consumer(broker: Broker) -> None:
    """Distribution-mode move and none are refused, and the error says how to read."""
    session, address, sender = _log(broker)
    sender.put([data(b"0")])
    for mode in (None, "move"):
        error = expect_refused(session, NOT_ALLOWED, Source(address=address, distribution_mode=mode))
        expect_equal("it says how", True, "rabbitmq:stream-offset-spec" in (error.description or ""))
    expect_offsets(reader_on(session, address, "first", mode=None, credit=1), [0])


@scenario("ret.logs/browser", "ret.log-browser", "ret.nothing-taken")
def browser(broker: Broker) -> None:
    """Mode copy without a filter shows everything from the first on, however often."""
    session, address, sender = _log(broker)
    sender.put([data(b"%d" % number) for number in range(4)])
    for handle in (5, 6):
        source = Source(address=address, distribution_mode="copy")
        link = session.receiver(None, handle, f"browser-{handle}", source=source, credit=10)
        expect_offsets(link, range(4))


@scenario("ret.logs/answer", "ret.log-answer", "ret.answer")
def answer_logs(broker: Broker) -> None:
    """The target is a log and no queue, whatever was asked; `$retained` and a reader's link say so, too."""
    session, address, sender = _log(broker)
    expect_equal("queue", False, QUEUE in _capabilities(sender))
    reader = reader_on(session, address, "first")
    expect_equal("kind of the link", LOG, properties_of_link(reader).get("kind"))
    (node,) = asker(broker).ask("describe", address=address)["nodes"]
    expect_equal("kind of the node", LOG, node.get("kind"))


TOLD = "told"
"""Queues of second_broker.toml that retain, and of which the journal tells."""


def _event(reader: Receiver, address: str) -> dict[str, Any]:
    """Returns the next event of one queue: other scenarios have theirs in the same log."""
    while True:
        delivery = reader.receive()
        message = Message(delivery.payload)
        fields: dict[str, Any] = plain_value(message.body_sections()[0].value)
        subject = message.properties.subject if message.properties else None
        expect_equal("subject, lsn", (subject, offset_of(delivery)), (fields["type"], fields["lsn"]))
        if fields.get("address") == address:
            return fields


@scenario("ret.events/messages", "ret.event", "ret.events-read")
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


@scenario("ret.events/requests", "ret.events-read", "ret.describe")
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

"""Logs: what comes in is archived at once, nobody takes it, and the answers say so."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Sender, Session
from amqp_broker.conformance.halves import Halves, half
from amqp_broker.conformance.messages import data, header_of
from amqp_broker.conformance.outcomes import NotApplicable, expect_equal
from amqp_broker.conformance.queues import body_of
from amqp_broker.conformance.retention import (
    NOT_ALLOWED,
    PROFILE,
    asker,
    expect_offsets,
    expect_refused,
    properties_of_link,
    reader_on,
)
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import Controller, post
from amqp_broker.frames import Header, Source, Target, encode_composite

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
    target = sender.remote_attach.target if sender.remote_attach else None
    return [str(one) for one in getattr(target, "capabilities", None) or ()]


@scenario("ret.logs/archived", "ret.log-archives", "ret.log-ttl", profile=PROFILE)
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


@scenario("ret.logs/consumer", "ret.log-consumer", profile=PROFILE)
def consumer(broker: Broker) -> None:
    """Distribution-mode move and none are refused, and the error says how to read."""
    session, address, sender = _log(broker)
    sender.put([data(b"0")])
    for mode in (None, "move"):
        error = expect_refused(session, NOT_ALLOWED, Source(address=address, distribution_mode=mode))
        expect_equal("it says how", True, "rabbitmq:stream-offset-spec" in (error.description or ""))
    expect_offsets(reader_on(session, address, "first", mode=None, credit=1), [0])


@scenario("ret.logs/browser", "ret.log-browser", "ret.nothing-taken", profile=PROFILE)
def browser(broker: Broker) -> None:
    """Mode copy without a filter shows everything from the first on, however often."""
    session, address, sender = _log(broker)
    sender.put([data(b"%d" % number) for number in range(4)])
    for handle in (5, 6):
        source = Source(address=address, distribution_mode="copy")
        link = session.receiver(None, handle, f"browser-{handle}", source=source, credit=10)
        expect_offsets(link, range(4))


@scenario("ret.logs/answer", "ret.log-answer", "ret.answer", profile=PROFILE)
def answer(broker: Broker) -> None:
    """The target is a log and no queue, whatever was asked; `$retained` and a reader's link say so, too."""
    session, address, sender = _log(broker)
    expect_equal("queue", False, QUEUE in _capabilities(sender))
    reader = reader_on(session, address, "first")
    expect_equal("kind of the link", LOG, properties_of_link(reader).get("kind"))
    (node,) = asker(broker).ask("describe", address=address)["nodes"]
    expect_equal("kind of the node", LOG, node.get("kind"))

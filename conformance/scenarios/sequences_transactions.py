"""Sequenced messages in transactions, and on half messages (sequences: on the wire)."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Sender
from amqp_broker.conformance.halves import NOT_ALLOWED, Halves, half
from amqp_broker.conformance.outcomes import expect_equal, expect_state
from amqp_broker.conformance.queues import expect_left
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.sequences import (
    ACCEPTED,
    GAP,
    Place,
    chain,
    expect_told,
    info,
    placed,
    standing,
    stream_sender,
)
from amqp_broker.conformance.transactions import ROLLBACK, Controller, expect_provisional, within
from amqp_broker.frames import Accepted, Discharge, Ulong


class _Posting:
    """A controller, and a sender on its session."""

    def __init__(self, broker: Broker, container: str = "controller") -> None:
        broker.require_coordinator()
        self.broker = broker
        self.control = Controller(broker, broker.session(container=container))
        self.sender: Sender = self.control.session.sender(broker.queue())
        self.txn = self.control.declare()

    def post(self, places: list[Place], expected: list[str]) -> list[object]:
        """Posts messages in the transaction; raises Unexpected unless they are told this provisionally."""
        return expect_told(self.sender, [placed(place) for place in places], expected, self.txn)

    def refused(self) -> None:
        """Discharges, which must be answered with a rollback; declares the next one."""
        self.control.refused(Discharge(txn_id=self.txn, fail=False), ROLLBACK)
        self.txn = self.control.declare()

    def commit(self) -> None:
        """Discharges, and declares the next one."""
        self.control.commit(self.txn)
        self.txn = self.control.declare()


def _standing(broker: Broker, container: str) -> tuple[int, int]:
    sender = stream_sender(broker, "s", container=container)
    found = standing(sender)
    sender.peer.close()
    return found


@scenario("seq.transactions/commit", "seq.transactions-tentative")
def commit(broker: Broker, posting: _Posting) -> None:
    """Messages and state are there with the discharge, and neither before."""
    posting.post(chain(1, 3), ACCEPTED * 3)
    posting.post(chain(4, 5), ACCEPTED * 2)
    expect_equal("the stream before", (0, 0), _standing(broker, "before"))
    posting.commit()
    expect_equal("the stream after", (1, 5), _standing(broker, "after"))
    expect_left(broker, broker.queue(), b"1.1", b"1.2", b"1.3", b"1.4", b"1.5", in_order=True)


@scenario("seq.transactions/tentative", "seq.transactions-tentative")
def tentative(broker: Broker, posting: _Posting) -> None:
    """Judged on what the transaction would leave: its own duplicates are discarded, a gap is provisional."""
    posting.post([*chain(1, 2), (1, 2, 1)], ACCEPTED * 3)
    _, state = posting.post([(1, 1, 0), (1, 4, 3)], [*ACCEPTED, GAP])
    expect_equal("the info", {"seq-id": 1, "seq-no": 2, "expected-prev": 2}, info(state))
    posting.post([(1, 3, 2)], ACCEPTED)
    posting.commit()
    expect_left(broker, broker.queue(), b"1.1", b"1.2", b"1.3", in_order=True)


@scenario("seq.transactions/rolled-back-and-again", "seq.transactions-tentative")
def rolled_back_and_again(broker: Broker, posting: _Posting) -> None:
    """After a rollback the stream is where it was, and the same messages come through."""
    posting.post(chain(1, 3), ACCEPTED * 3)
    posting.control.roll_back(posting.txn)
    posting.txn = posting.control.declare()
    posting.post([(1, 4, 3)], [GAP])
    posting.post(chain(1, 3), ACCEPTED * 3)
    posting.commit()
    expect_left(broker, broker.queue(), b"1.1", b"1.2", b"1.3", in_order=True)


@scenario("seq.transactions/two", "seq.transactions-tentative")
def two(broker: Broker) -> None:
    """Two transactions on one stream: the first discharge has it, the second is rolled back."""
    one, other = _Posting(broker, "one"), _Posting(broker, "other")
    one.post(chain(1, 3), ACCEPTED * 3)
    other.post(chain(1, 2), ACCEPTED * 2)
    one.commit()
    other.refused()
    other.post(chain(1, 4), ACCEPTED * 4)
    other.commit()
    expect_left(broker, broker.queue(), b"1.1", b"1.2", b"1.3", b"1.4", in_order=True)


@scenario("seq.transactions/moved", "seq.transactions-tentative")
def moved(broker: Broker, posting: _Posting) -> None:
    """A plain message moves the stream before the discharge: rolled back."""
    posting.post(chain(1, 2), ACCEPTED * 2)
    expect_told(stream_sender(broker, container="plain"), [placed((1, 1, 0))], ACCEPTED)
    posting.refused()
    expect_left(broker, broker.queue(), b"1.1")


@scenario("seq.transactions/in-one-write", "seq.transactions-tentative")
def in_one_write(broker: Broker, posting: _Posting) -> None:
    """Posts and their discharge in one write: the provisional outcomes come before its answer."""
    posting.sender.await_credit(4)
    with posting.control.peer.one_write():
        sent = [
            posting.sender.send(placed(place), wait=False, state=within(posting.txn))
            for place in [*chain(1, 3), (1, 2, 1)]
        ]
        asked = posting.control.ask(Discharge(txn_id=posting.txn, fail=False))
    for number in sent:
        expect_provisional(posting.sender, number, posting.txn, Accepted)
    expect_state(posting.control.answer(asked), Accepted)
    expect_equal("the stream", (1, 3), _standing(broker, "after"))


@scenario("seq.transactions/settled-gap", "seq.transactions-tentative", "seq.outcomes-gap")
def settled_gap(broker: Broker, posting: _Posting) -> None:
    """A gap in what was sent settled can be told at the discharge only: rolled back."""
    for place in [(1, 1, 0), (1, 3, 2)]:
        posting.sender.send(placed(place), state=within(posting.txn), settled=True)
    posting.refused()
    expect_equal("the stream", (0, 0), _standing(broker, "after"))


@scenario("seq.transactions/lost", "seq.transactions-tentative")
def lost(broker: Broker, posting: _Posting) -> None:
    """With the controller's connection its tentative state is gone."""
    posting.post(chain(1, 3), ACCEPTED * 3)
    posting.control.peer.drop()
    sender = stream_sender(broker, "s", container="next")
    expect_equal("the stream", (0, 0), standing(sender))
    expect_told(sender, [placed((1, 1, 0), None)], ACCEPTED)
    expect_left(broker, broker.queue(), b"1.1")


@scenario("seq.transactions/half-messages", "seq.transactions-half")
def half_messages(broker: Broker) -> None:
    """Sequence fields on a half message are refused, in either form."""
    broker.require_protocol("half-messages")
    halves = Halves(broker)
    producer = halves.producer()
    for message in (
        half("1", named={"seq_stream": "s", "seq_id": 1, "seq_no": 1, "seq_prev": 0}),
        half("2", named={"seq_no": 1}),
        half("3", annotations={"x-opt-seq-stream": "s"}),
        half("4", annotations={"x-opt-seq-id": Ulong(1)}),
    ):
        producer.refused(message, NOT_ALLOWED)

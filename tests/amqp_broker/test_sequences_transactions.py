"""Sequenced messages in transactions: judged on a tentative state, stored with it at the discharge."""

from __future__ import annotations

import pytest

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerConfig, BrokerLimits, QueuePolicy
from amqp_broker.frames import Accepted, Discharge, TransactionalState
from amqp_broker.testing import memory_config
from amqp_broker.testing.peer import PeerSender, PeerSession
from tests.support.broker_clients import at_rest, error_of, message, session_to
from tests.support.controllers import Controller
from tests.support.jumping_broker import InEachStore, JumpingBroker
from tests.support.sequenced import Place, annotated, chain, info_of, left_at, outcomes, stream_of, words


@pytest.fixture
def config(in_each_store: InEachStore) -> BrokerConfig:
    """The queue `small` takes three messages."""
    limits = BrokerLimits(transaction_operations=20)
    small = QueuePolicy(pattern="small", max_messages=3)
    return in_each_store(memory_config(limits=limits, queue_policies=(small,)))


class Posting:
    """A controller and a sender on one session."""

    def __init__(self, session: PeerSession, address: str = "q", name: str = "t") -> None:
        self.session = session
        self.controller = Controller(session, f"control-{name}")
        self.sender: PeerSender = session.attach_sender(f"sender-{name}", address)
        self.txn_id = self.controller.declare()

    def post(self, *places: Place) -> list[str]:
        """The provisional outcomes, in words."""
        return words([self.provisional(state) for state in self.states(*places)])

    def states(self, *places: Place) -> list[object]:
        """What the broker answers to messages in the transaction."""
        return outcomes(self.sender, [annotated(place) for place in places], txn_id=self.txn_id)

    def provisional(self, state: object) -> object:
        """The outcome in a transactional-state of this transaction."""
        assert isinstance(state, TransactionalState) and state.txn_id == self.txn_id
        return state.outcome

    def again(self) -> None:
        """The next transaction."""
        self.txn_id = self.controller.declare()


def reached(broker: JumpingBroker, queue: str = "q") -> int:
    """The last accepted number of the stream, 0 if there is none."""
    info = stream_of(broker, queue)
    return 0 if info is None else info.seq_no


def reserved(broker: JumpingBroker, name: str) -> tuple[int, int]:
    """(messages, octets) that open transactions keep in a queue, and what is kept of tentative streams."""

    def there(running: object) -> tuple[int, int]:
        assert isinstance(running, Broker)
        queue = running.nodes.queues._queues[name]
        return queue.reserved_messages, len(running.features.sequences._tentative)

    found = broker.call(there)
    assert isinstance(found, tuple)
    return found


def test_messages_and_state_are_there_with_the_commit(broker: JumpingBroker, session: PeerSession) -> None:
    """Neither before: a plain sender of the same stream is at (0, 0) until then."""
    posting = Posting(session)
    assert posting.post(*chain(1, 3)) == ["accepted"] * 3
    assert posting.post(*chain(4, 5)) == ["accepted"] * 2
    assert reached(broker) == 0
    posting.controller.commit(posting.txn_id)
    assert reached(broker) == 5
    assert left_at(session, "q", 5) == ["1.1", "1.2", "1.3", "1.4", "1.5"]
    assert reserved(broker, "q") == (0, 0)


def test_it_is_judged_on_what_the_transaction_would_leave(session: PeerSession) -> None:
    """Duplicates of it are discarded, a gap is told provisionally and the rest commits."""
    posting = Posting(session)
    outcomes(posting.sender, [annotated((1, 1, 0))])
    assert posting.post((1, 1, 0), (1, 2, 1), (1, 2, 1)) == ["accepted"] * 3
    states = posting.states((1, 4, 3), (1, 3, 2))
    assert words([posting.provisional(state) for state in states]) == ["seq:gap", "accepted"]
    assert info_of(posting.provisional(states[0])) == {"seq-id": 1, "seq-no": 2, "expected-prev": 2}
    posting.controller.commit(posting.txn_id)
    assert left_at(session, "q", 3) == ["1.1", "1.2", "1.3"]


def test_rolled_back_and_again(broker: JumpingBroker, session: PeerSession) -> None:
    """The stream is where it was, and the same messages come through in the next transaction."""
    posting = Posting(session)
    assert posting.post(*chain(1, 3)) == ["accepted"] * 3
    posting.controller.roll_back(posting.txn_id)
    assert reached(broker) == 0
    assert reserved(broker, "q") == (0, 0)
    posting.again()
    assert posting.post((1, 2, 1)) == ["seq:gap"]
    assert posting.post(*chain(1, 3)) == ["accepted"] * 3
    posting.controller.commit(posting.txn_id)
    assert left_at(session, "q", 3) == ["1.1", "1.2", "1.3"]


def test_two_transactions_on_one_stream(broker: JumpingBroker, session: PeerSession) -> None:
    """Who commits first has it; the other's discharge is rejected with amqp:transaction:rollback, also when
    both are in the same commit.
    """
    with session_to(broker, "other") as second:
        one, two = Posting(session, name="one"), Posting(second, name="two")
        assert one.post(*chain(1, 3)) == ["accepted"] * 3
        assert two.post(*chain(1, 2)) == ["accepted"] * 2
        one.controller.commit(one.txn_id)
        error = error_of(two.controller.discharge(two.txn_id))
        assert error.condition == "amqp:transaction:rollback"
        assert "was at id 0, number 0" in (error.description or "")
        assert reached(broker) == 3
        two.again()
        assert two.post(*chain(1, 4)) == ["accepted"] * 4
        two.controller.commit(two.txn_id)
        assert left_at(session, "q", 4) == ["1.1", "1.2", "1.3", "1.4"]


def test_two_discharges_in_one_commit(broker: JumpingBroker, session: PeerSession) -> None:
    """Both transactions of one connection are discharged in one write: the second finds the first."""
    one, two = Posting(session, name="one"), Posting(session, name="two")
    assert one.post(*chain(1, 2)) == ["accepted"] * 2
    assert two.post(*chain(1, 3)) == ["accepted"] * 3
    asked = [
        one.controller.ask(Discharge(txn_id=one.txn_id, fail=False)),
        two.controller.ask(Discharge(txn_id=two.txn_id, fail=False)),
    ]
    assert isinstance(one.controller.answer(asked[0]), Accepted)
    error = error_of(two.controller.answer(asked[1]))
    assert error.condition == "amqp:transaction:rollback"
    assert reached(broker) == 2
    assert left_at(session, "q", 2) == ["1.1", "1.2"]


def test_what_moves_the_stream_in_between_rolls_back(broker: JumpingBroker, session: PeerSession) -> None:
    """A plain message, or an administrator's reset."""

    async def reset(running: object) -> object:
        return await running.reset_stream("q", "s")  # type: ignore[attr-defined]

    posting = Posting(session)
    plain = session.attach_sender("plain", "q")
    assert posting.post(*chain(1, 2)) == ["accepted"] * 2
    assert words(outcomes(plain, [annotated((1, 1, 0))])) == ["accepted"]
    assert error_of(posting.controller.discharge(posting.txn_id)).condition == "amqp:transaction:rollback"
    posting.again()
    assert posting.post((1, 2, 1)) == ["accepted"]
    assert broker.call(reset) is True
    assert error_of(posting.controller.discharge(posting.txn_id)).condition == "amqp:transaction:rollback"
    assert reserved(broker, "q") == (0, 0)
    assert left_at(session, "q", 1) == ["1.1"]


def test_a_discharge_in_the_same_write_as_its_posts(broker: JumpingBroker, session: PeerSession) -> None:
    """The provisional outcomes come before the answer of the discharge (4.4.1)."""
    posting = Posting(session)
    posting.session.connection.pump_until(lambda: posting.sender.may_send)
    numbers = [
        posting.sender.send(annotated(place), txn_id=posting.txn_id)
        for place in [*chain(1, 3), (1, 3, 2), (1, 9, 8)]
    ]
    asked = posting.controller.ask(Discharge(txn_id=posting.txn_id, fail=False))
    assert isinstance(posting.controller.answer(asked), Accepted)
    told = [posting.provisional(posting.sender.outcomes[number]) for number in numbers]
    assert words(told) == ["accepted"] * 4 + ["seq:gap"]
    assert reached(broker) == 3
    assert left_at(session, "q", 3) == ["1.1", "1.2", "1.3"]


def test_a_rollback_in_the_same_write_as_its_posts(broker: JumpingBroker, session: PeerSession) -> None:
    """They are told that it was rolled back, and nothing of them is left."""
    posting = Posting(session)
    posting.session.connection.pump_until(lambda: posting.sender.may_send)
    number = posting.sender.send(annotated((1, 1, 0)), txn_id=posting.txn_id)
    asked = posting.controller.ask(Discharge(txn_id=posting.txn_id, fail=True))
    assert isinstance(posting.controller.answer(asked), Accepted)
    session.connection.pump_until(lambda: number in posting.sender.outcomes)
    at_rest(broker)
    assert reserved(broker, "q") == (0, 0)
    assert reached(broker) == 0
    assert words(outcomes(posting.sender, [annotated((1, 1, 0))])) == ["accepted"]


def test_a_settled_gap_can_not_commit(broker: JumpingBroker, session: PeerSession) -> None:
    """Its sender is not told, so the discharge is (4.4.4), in the same write or later."""
    posting = Posting(session)
    connection = session.connection
    connection.pump_until(lambda: posting.sender.may_send)
    for at_once in (True, False):
        posting.sender.send(annotated((1, 1, 0)), txn_id=posting.txn_id, settled=True)
        posting.sender.send(annotated((1, 3, 2)), txn_id=posting.txn_id, settled=True)
        if not at_once:
            connection.flush()
            at_rest(broker)
        error = error_of(posting.controller.discharge(posting.txn_id))
        assert error.condition == "amqp:transaction:rollback" and "seq:gap" in (error.description or "")
        posting.again()
    assert reached(broker) == 0
    assert reserved(broker, "q") == (0, 0)


def test_a_full_queue_does_not_move_the_stream(broker: JumpingBroker, session: PeerSession) -> None:
    """There is no credit for the fourth message, which is no gap when there is some."""
    posting = Posting(session, "small")
    assert posting.post(*chain(1, 3)) == ["accepted"] * 3
    session.connection.pump_until(lambda: posting.sender.credit == 0)
    posting.controller.commit(posting.txn_id)
    assert reached(broker, "small") == 3
    assert left_at(session, "small", 3, take=True) == ["1.1", "1.2", "1.3"]
    posting.again()
    broker.jump(1)  # what was settled by its receiver is stored when it suits
    session.connection.pump_until(lambda: posting.sender.may_send)
    assert posting.post((1, 4, 3)) == ["accepted"]
    posting.controller.commit(posting.txn_id)
    assert left_at(session, "small", 1) == ["1.4"]


def test_beyond_the_operations_of_a_transaction(broker: JumpingBroker, session: PeerSession) -> None:
    """The run is refused as others are, and the transaction can only roll back."""
    posting = Posting(session)
    assert posting.post(*chain(1, 15)) == ["accepted"] * 15
    assert set(posting.post(*chain(16, 25))) == {"amqp:resource-limit-exceeded"}
    error = error_of(posting.controller.discharge(posting.txn_id))
    assert error.condition == "amqp:transaction:rollback"
    assert reserved(broker, "q") == (0, 0) and reached(broker) == 0


def test_other_messages_and_streams_in_one_transaction(broker: JumpingBroker, session: PeerSession) -> None:
    """Their order in the queue is that of the posts; each stream has its own state."""
    posting = Posting(session)
    payloads = [
        message(b"a", durable=True), annotated((1, 1, 0)), annotated((5, 1, 0), "t"),
        message(b"b", durable=True), annotated((1, 2, 1)),
    ]  # fmt: skip
    outcomes(posting.sender, payloads, txn_id=posting.txn_id)
    outcomes(posting.sender, [message(b"c", durable=True)], txn_id=posting.txn_id)
    posting.controller.commit(posting.txn_id)
    assert left_at(session, "q", 6) == ["a", "1.1", "5.1", "b", "1.2", "c"]
    assert stream_of(broker, "q", "t").seq_id == 5


def test_a_lost_connection_rolls_back(broker: JumpingBroker, session: PeerSession) -> None:
    """With its control link what was tentative is gone; the stream is free at once."""
    with session_to(broker, "lost") as lost:
        assert Posting(lost).post(*chain(1, 3)) == ["accepted"] * 3
    plain = session.attach_sender("plain", "q")
    assert words(outcomes(plain, [annotated((1, 1, 0))])) == ["accepted"]
    at_rest(broker)
    assert reserved(broker, "q") == (0, 0)
    assert left_at(session, "q", 1) == ["1.1"]

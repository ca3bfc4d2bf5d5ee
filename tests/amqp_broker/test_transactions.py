"""Transactions on the wire of a real broker: what the conformance scenarios can't see, and what they stand
on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerLimits, QueuePolicy
from amqp_broker.embedding import RunningBroker, running_broker
from amqp_broker.frames import (
    Accepted,
    AmqpValue,
    Discharge,
    Error,
    Message,
    Modified,
    Properties,
    Rejected,
    Released,
    Symbol,
    TransactionalState,
    encode_message,
)
from amqp_broker.persistence import DischargedAt, MemoryStore, OutcomesDamaged, Question
from amqp_broker.testing import memory_config
from amqp_broker.testing.peer import PeerError, PeerSender, PeerSession
from tests.support.broker_clients import (
    at_rest,
    bodies,
    body_of,
    browse,
    counts,
    message,
    receive,
    round_trip,
    send,
    session_to,
)
from tests.support.controllers import Controller


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """A broker whose queue `small` takes three messages."""
    config = memory_config(
        limits=BrokerLimits(max_transactions=3, transaction_operations=10),
        queue_policies=(QueuePolicy(pattern="small", max_messages=3),),
    )
    with running_broker(config) as running:
        yield running


def post(sender: PeerSender, txn_id: bytes, *texts: bytes, settled: bool = False) -> list[object]:
    """Post in a transaction; the provisional outcomes."""
    connection = sender.session.connection
    numbers = [sender.send(message(text, durable=True), txn_id=txn_id, settled=settled) for text in texts]
    if settled:
        connection.flush()
        return []
    connection.pump_until(lambda: all(number in sender.outcomes for number in numbers))
    return [sender.outcomes[number] for number in numbers]


def error_of(state: object) -> Error:
    """The error of a rejected outcome, provisional or not."""
    outcome = state.outcome if isinstance(state, TransactionalState) else state
    assert isinstance(outcome, Rejected) and outcome.error is not None, f"expected rejected, got {state!r}"
    return outcome.error


def outcome_of(sender: PeerSender, payload: bytes) -> object:
    """Send one message and wait for its outcome."""
    number = sender.send(payload)
    sender.session.connection.pump_until(lambda: number in sender.outcomes)
    return sender.outcomes[number]


def subject_of(payload: bytes) -> str | None:
    """properties.subject of a message."""
    properties = Message(payload).properties
    assert properties is not None
    return properties.subject


def reserved(broker: RunningBroker, name: str) -> tuple[int, int]:
    """(messages, octets) that open transactions keep in a queue."""

    def there(running: Broker) -> tuple[int, int]:
        queue = running.nodes.queues._queues[name]
        return queue.reserved_messages, queue.reserved_bytes

    found = broker.call(there)
    assert isinstance(found, tuple)
    return found


def test_a_post_keeps_room_until_its_transaction_ends(broker: RunningBroker) -> None:
    """Capacity is reserved at the post (row "capacity and TTL"): there is no credit beyond it, what comes
    without credit gets a provisional `rejected`, and the rest can't be committed without it.
    """
    with session_to(broker) as session:
        controller = Controller(session)
        sender = session.attach_sender("s", "small")
        session.connection.pump_until(lambda: sender.may_send)
        txn_id = controller.declare()
        states = post(sender, txn_id, b"1", b"2", b"3")
        outcomes = [state.outcome for state in states if isinstance(state, TransactionalState)]
        assert [type(outcome) for outcome in outcomes] == [Accepted, Accepted, Accepted]
        session.connection.pump_until(lambda: sender.credit == 0)
        relay = session.attach_sender("relay", None)
        session.connection.pump_until(lambda: relay.may_send)
        number = relay.send(encode_message(properties=Properties(to="small"), body=b"4"), txn_id=txn_id)
        session.connection.pump_until(lambda: number in relay.outcomes)
        assert error_of(relay.outcomes[number]).condition == "amqp:resource-limit-exceeded"
        assert reserved(broker, "small")[0] == 3
        told = error_of(controller.discharge(txn_id))
        assert told.condition == "amqp:transaction:rollback"
        assert "on link 'relay': amqp:resource-limit-exceeded: queue 'small' is full" in str(told.description)
        assert reserved(broker, "small") == (0, 0)
        session.connection.pump_until(lambda: sender.credit == 2)  # one place is kept for who was refused
        txn_id = controller.declare()
        post(sender, txn_id, b"1", b"2")
        assert reserved(broker, "small")[0] == 2
        controller.commit(txn_id)
        assert reserved(broker, "small") == (0, 0)
        receiver = session.attach_receiver("r", "small", credit=10)
        assert bodies(receive(receiver, 2)) == [b"1", b"2"]


def test_a_rollback_gives_the_room_back(broker: RunningBroker) -> None:
    """After a rollback senders that waited for room have credit again."""
    with session_to(broker) as session:
        controller = Controller(session)
        sender = session.attach_sender("s", "small")
        session.connection.pump_until(lambda: sender.may_send)
        txn_id = controller.declare()
        post(sender, txn_id, b"1", b"2", b"3")
        session.connection.pump_until(lambda: sender.credit == 0)
        controller.roll_back(txn_id)
        session.connection.pump_until(lambda: sender.may_send)
        assert reserved(broker, "small") == (0, 0)
        send(sender, b"4")
        receiver = session.attach_receiver("r", "small", credit=10)
        assert bodies(receive(receiver, 1)) == [b"4"]


def test_an_administrator_sees_live_transactions_and_rolls_one_back(broker: RunningBroker) -> None:
    """Age, container and work done; after the forced rollback the controller is told why (4.4)."""
    with session_to(broker, "the-controller") as session:
        controller = Controller(session)
        sender = session.attach_sender("s", "q")
        send(sender, b"a")
        receiver = session.attach_receiver("r", "q", credit=10)
        (delivery,) = receive(receiver, 1)
        txn_id, other = controller.declare(), controller.declare()
        post(sender, txn_id, b"b", b"c")
        receiver.settle([delivery], TransactionalState(txn_id=txn_id, outcome=Accepted()), settled=False)
        controller.roll_back(other)
        (live,) = broker.call(Broker.transactions)
        assert (live.txn_id, live.container_id, live.state) == (txn_id, "the-controller", "LIVE")
        assert (live.posted, live.retired, live.acquired) == (2, 1, 0)
        assert live.age_s >= 0 and live.timeout_in_s <= 120
        assert broker.call(Broker.roll_back_transaction, txn_id, "no work at night")
        assert not broker.call(Broker.roll_back_transaction, txn_id, "twice")
        assert broker.call(Broker.transactions) == []
        state = controller.discharge(txn_id)
        assert error_of(state).condition == "amqp:transaction:rollback"
        assert "no work at night" in (error_of(state).description or "")
        receiver.settle([delivery], Released())  # a rolled back retirement leaves it acquired
        assert bodies(receive(receiver, 1)) == [b"a"]
        assert not receiver.deliveries


def test_a_flood_of_declares_is_answered_and_leaks_nothing(broker: RunningBroker) -> None:
    """max_transactions live ones for a connection; what comes beyond is rejected, and all is free again
    after its end.
    """
    with session_to(broker) as session:
        controller = Controller(session)
        live = [controller.declare() for _ in range(3)]
        with pytest.raises(AssertionError, match="resource-limit-exceeded"):
            controller.declare()
        controller.roll_back(live[0])
        controller.declare()
        assert len(broker.call(Broker.transactions)) == 3
    at_rest(broker)
    assert broker.call(Broker.transactions) == []


def test_too_many_operations_leave_rollback_only(broker: RunningBroker) -> None:
    """transaction_operations bounds one transaction: the controller is told at the post, and at the
    discharge.
    """
    with session_to(broker) as session:
        controller = Controller(session)
        sender = session.attach_sender("s", "q")
        session.connection.pump_until(lambda: sender.may_send)
        txn_id = controller.declare()
        for number in range(10):
            post(sender, txn_id, b"%d" % number)
        (state,) = post(sender, txn_id, b"one too many")
        assert error_of(state).condition == "amqp:resource-limit-exceeded"
        assert error_of(controller.discharge(txn_id)).condition == "amqp:transaction:rollback"
        assert reserved(broker, "q") == (0, 0)


def test_a_browser_sees_what_a_live_transaction_has_acquired(broker: RunningBroker) -> None:
    """Row "isolation": other links don't, and after the commit nobody does."""
    with session_to(broker) as session, session_to(broker) as other:
        sender = session.attach_sender("s", "q")
        send(sender, b"1", b"2", b"3")
        controller = Controller(session)
        txn_id = controller.declare()
        receiver = session.attach_receiver("r", "q")
        receiver.flow(2, txn_id=txn_id)
        acquired = receive(receiver, 2)
        assert bodies(acquired) == [b"1", b"2"]
        browser = browse(other, "b", "q", credit=10)
        assert bodies(receive(browser, 3)) == [b"1", b"2", b"3"]
        rival = other.attach_receiver("rival", "q", credit=10)
        assert bodies(receive(rival, 1)) == [b"3"] and not rival.deliveries
        receiver.settle(acquired, TransactionalState(txn_id=txn_id, outcome=Accepted()))
        controller.commit(txn_id)
        late = browse(other, "late", "q")
        late.drain_all(10)
        assert not late.deliveries


def test_modified_in_a_transaction_changes_the_message_at_commit_only(broker: RunningBroker) -> None:
    """A retirement with modified: the count and annotations are the message's after the commit (4.4.3)."""
    with session_to(broker) as session:
        sender = session.attach_sender("s", "q")
        send(sender, b"1", durable=True)
        controller = Controller(session)
        receiver = session.attach_receiver("r", "q", credit=1)
        modified = Modified(delivery_failed=True, message_annotations={"x-opt-tried": True})
        for end in (controller.roll_back, controller.commit):
            (delivery,) = receive(receiver, 1)
            assert Message(delivery.payload).header.delivery_count == 0
            txn_id = controller.declare()
            receiver.settle([delivery], TransactionalState(txn_id=txn_id, outcome=modified), settled=False)
            end(txn_id)
            if end == controller.roll_back:  # it stays acquired by the link: let it go, unchanged
                receiver.settle([delivery], Released())
                receiver.flow(1)
        receiver.flow(1)
        (again,) = receive(receiver, 1)
        found = Message(again.payload)
        assert found.header.delivery_count == 1
        assert found.message_annotations == {Symbol("x-opt-tried"): True}


def ask(session: PeerSession, correlation_id: object, name: str = "asker") -> tuple[str | None, object]:
    """The word that `$transactions` answers with, and the outcome of the question."""
    receiver = session.attach_receiver(f"{name}-replies", "replies", credit=1)
    sender = session.attach_sender(name, "$transactions")
    session.connection.pump_until(lambda: sender.may_send)
    properties = Properties(correlation_id=correlation_id, reply_to="replies")
    state = outcome_of(sender, encode_message(properties=properties, body=b""))
    word = None
    if isinstance(state, Accepted):
        (reply,) = receive(receiver, 1)
        receiver.settle([reply], Accepted())
        found = Message(reply.payload)
        assert found.properties is not None and found.properties.correlation_id == correlation_id
        (section,) = found.body_sections()
        assert isinstance(section, AmqpValue) and section.value == found.properties.subject
        word = found.properties.subject
    receiver.detach()
    sender.detach()
    return word, state


def test_the_outcome_of_a_discharge_can_be_asked_by_anybody_who_knows_its_id(broker: RunningBroker) -> None:
    """live, then committed or not-committed, from another connection, as binary and as hex digits."""
    with session_to(broker) as session, session_to(broker, "other") as other:
        controller = Controller(session)
        first, second = controller.declare(), controller.declare()
        assert ask(other, first)[0] == "live"
        controller.commit(first)
        controller.roll_back(second)
        assert ask(other, first)[0] == "committed"
        assert ask(other, first.hex())[0] == "committed"
        assert ask(other, second)[0] == "not-committed"
        assert ask(other, b"no such id")[0] == "not-committed"


def test_a_question_without_an_id_or_without_a_queue_for_the_reply_is_rejected(broker: RunningBroker) -> None:
    """The rejection says what was expected."""
    with session_to(broker) as session:
        for correlation_id in (None, "no hex", b"x" * 33):
            word, state = ask(session, correlation_id)
            assert word is None
            assert "correlation-id" in (error_of(state).description or "")
        sender = session.attach_sender("s", "$transactions")
        session.connection.pump_until(lambda: sender.may_send)
        for reply_to, condition in ((None, "amqp:invalid-field"), ("nowhere", "amqp:not-found")):
            properties = Properties(correlation_id=b"id", reply_to=reply_to)
            assert (
                error_of(outcome_of(sender, encode_message(properties=properties, body=b""))).condition
                == condition
            )


def test_the_question_can_be_asked_through_the_anonymous_terminus(broker: RunningBroker) -> None:
    """The same address is the same node everywhere."""
    with session_to(broker) as session:
        txn_id = Controller(session).declare()
        receiver = session.attach_receiver("r", "replies", credit=1)
        sender = session.attach_sender("relay", None)
        session.connection.pump_until(lambda: sender.may_send)
        properties = Properties(to="$transactions", correlation_id=txn_id, reply_to="replies")
        assert isinstance(outcome_of(sender, encode_message(properties=properties, body=b"")), Accepted)
        (reply,) = receive(receiver, 1)
        assert subject_of(reply.payload) == "live"


def test_a_question_in_a_transaction_is_refused(broker: RunningBroker) -> None:
    """The node takes part in none: a provisional `rejected`, and nothing can be committed without it."""
    with session_to(broker) as session:
        controller = Controller(session)
        txn_id = controller.declare()
        sender = session.attach_sender("s", "$transactions")
        session.connection.pump_until(lambda: sender.may_send)
        number = sender.send(encode_message(body=b""), txn_id=txn_id)
        session.connection.pump_until(lambda: number in sender.outcomes)
        assert error_of(sender.outcomes[number]).condition == "amqp:not-allowed"
        assert error_of(controller.discharge(txn_id)).condition == "amqp:transaction:rollback"


@pytest.mark.parametrize("settled", [False, True])
def test_what_is_half_sent_is_aborted_before_a_failed_discharge_is_answered(
    broker: RunningBroker, settled: bool
) -> None:
    """4.4.3: "the resource MUST abort or complete the sending the remainder of the message before completing
    the discharge"; while the session's window is closed the answer waits.
    """
    body = b"x" * 200_000
    with session_to(broker) as session, session_to(broker) as other:
        send(session.attach_sender("s", "q"), body)
        controller = Controller(session)
        txn_id = controller.declare()
        receiver = session.attach_receiver("r", "q", snd_settle_mode=1 if settled else 0)
        receiver.flow(1, txn_id=txn_id, incoming_window=1)
        session.connection.pump_until(lambda: receiver.partial is not None)
        number = controller.ask(Discharge(txn_id=txn_id, fail=True))
        session.connection.flush()
        (delivery,) = receive(other.attach_receiver("rival", "q", credit=1), 1)  # it is available again
        assert body_of(delivery) == body
        assert not session.connection.pump(0.05) and number not in controller.link.outcomes
        session.flow()
        assert isinstance(controller.answer(number), Accepted)
        assert receiver.partial is None and not receiver.deliveries


@pytest.mark.parametrize("end", ["cut", "session"])
def test_what_was_acquired_is_there_once_after_everything_ended_together(
    broker: RunningBroker, end: str
) -> None:
    """Links that end together, the control link first: its rollback gives the messages back, and the
    receiver's end does not do it again (4.1, 4.4.4).
    """
    with session_to(broker) as session:
        send(session.attach_sender("s", "q"), b"1", b"2", durable=True)
    with session_to(broker) as session:
        controller = Controller(session)
        receiver = session.attach_receiver("r", "q")
        receiver.flow(2, txn_id=controller.declare())
        receive(receiver, 2)
        if end == "session":
            session.end()
    with session_to(broker) as session:
        receiver = session.attach_receiver("r", "q", credit=10)
        assert bodies(receive(receiver, 2)) == [b"1", b"2"]
        receiver.drain_all(10)
        assert not receiver.deliveries
    assert not broker.call(Broker.transactions)


def test_what_came_before_a_detach_counts(broker: RunningBroker) -> None:
    """Posts that were sent settled and the detach of their link in one read: the messages are part of the
    transaction (4.4.4.1), and a discharge before the detach of its control link is done.
    """
    with session_to(broker) as session:
        controller = Controller(session)
        sender = session.attach_sender("s", "q", snd_settle_mode=1)
        session.connection.pump_until(lambda: sender.may_send)
        txn_id = controller.declare()
        for text in (b"1", b"2"):
            sender.send(message(text), settled=True, txn_id=txn_id)
        sender.detach()
        controller.ask(Discharge(txn_id=txn_id))
        controller.link.detach()
        at_rest(broker)
        receiver = session.attach_receiver("r", "q", credit=10)
        assert bodies(receive(receiver, 2)) == [b"1", b"2"]


def test_a_control_link_that_was_terminated_hears_nothing_more(broker: RunningBroker) -> None:
    """4.4.2: an outcome in one transaction for what another holds terminates the control link; a discharge
    that was sent behind it commits nothing.
    """
    with session_to(broker) as session:
        sender = session.attach_sender("s", "q")
        send(sender, b"1")
        controller = Controller(session)
        first, second = controller.declare(), controller.declare()
        receiver = session.attach_receiver("r", "q", credit=1)
        (delivery,) = receive(receiver, 1)
        number = sender.send(message(b"2"), txn_id=second)
        session.connection.pump_until(lambda: number in sender.outcomes)
        for txn_id in (first, second):
            state = TransactionalState(txn_id=txn_id, outcome=Accepted())
            receiver.settle([delivery], state, settled=False)
        controller.ask(Discharge(txn_id=second))
        with pytest.raises(PeerError, match="amqp:transaction:rollback"):
            session.connection.pump_until(lambda: controller.link.detached)
        at_rest(broker)
        assert counts(broker, "q")[0] == 1
        assert broker.call(Broker.transactions) == []


def test_a_damaged_record_of_outcomes_is_no_answer(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither committed nor not-committed: the question is rejected, and the broker goes on."""

    def damaged(self: MemoryStore, question: Question[Any]) -> Any:
        assert isinstance(question, DischargedAt)
        raise OutcomesDamaged("page 7")

    monkeypatch.setattr(MemoryStore, "ask", damaged)
    with session_to(broker) as session:
        word, state = ask(session, b"some id")
        assert word is None and error_of(state).condition == "amqp:internal-error"
        monkeypatch.undo()
        assert ask(session, b"some id", "again")[0] == "not-committed"


def test_a_browser_that_waits_is_shown_what_was_acquired_at_once(broker: RunningBroker) -> None:
    """A message that never was available when the browser looked, because a transaction acquired it right
    after its post (row "isolation").
    """
    with session_to(broker) as session, session_to(broker) as other:
        controller = Controller(session)
        receiver = session.attach_receiver("r", "q")
        receiver.flow(5, txn_id=controller.declare())
        browser = browse(other, "b", "q", credit=5)
        round_trip(session, other)
        send(other.attach_sender("s", "q"), b"1")
        assert bodies(receive(receiver, 1)) == [b"1"]
        assert bodies(receive(browser, 1)) == [b"1"]

"""The blocking producer of half messages: put, local transaction, resolution, check-back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from amqp_broker.client.blocking import BlockingConnection, connect
from amqp_broker.client.blocking_producer import BlockingTransactionProducer
from amqp_broker.client.errors import ConnectionGone, Gone, LinkRefused, WrongUse
from amqp_broker.client.half_errors import HalfConflict, HalfIdConflict, HalfUnknown
from amqp_broker.client.halves import Resolution
from amqp_broker.embedding import RunningBroker
from amqp_broker.testing import ScriptedFaults
from tests.client.shops import GROUP, PATIENT, QUEUE, WAIT_S, Gate, Table, halves, shop_broker

COMMIT, ROLLBACK, UNKNOWN = Resolution.COMMIT, Resolution.ROLLBACK, Resolution.UNKNOWN


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """In memory."""
    with shop_broker() as running:
        yield running


@pytest.fixture
def producer(connection: BlockingConnection) -> Iterator[BlockingTransactionProducer]:
    """Nobody is asked."""
    with connection.producer(PATIENT) as opened:
        yield opened


def shipped(connection: BlockingConnection) -> list[Any]:
    """What the warehouse gets now."""
    receiver = connection.open_receiver(QUEUE)
    bodies = []
    while (received := receiver.receive_now()) is not None:
        bodies.append(received.body)
        receiver.accept(received)
    receiver.close()
    return bodies


# --- put and resolve


def test_a_half_message_is_decided_once(
    broker: RunningBroker, connection: BlockingConnection, producer: BlockingTransactionProducer
) -> None:
    """Seen after its commit, once; a contradiction says what was decided, and a rollback has a reason."""
    half_id = producer.send_half(QUEUE, "one")
    assert shipped(connection) == []
    producer.commit(half_id)
    producer.commit(half_id)
    assert shipped(connection) == ["one"]
    with pytest.raises(HalfConflict, match="expected the rollback of half message") as caught:
        producer.rollback(half_id)
    assert (caught.value.state, caught.value.resolved_by) == ("committed", "producer")
    assert caught.value.half_id == half_id and caught.value.resolved_at_ms is not None
    for _ in range(3):  # the same content is harmless until it was decided
        assert producer.send_half(QUEUE, "two", half_id="order-2") == "order-2"
    with pytest.raises(HalfIdConflict, match="expected the put of half message 'order-2'"):
        producer.send_half(QUEUE, "three", half_id="order-2")
    producer.rollback("order-2", "no shoes")
    producer.rollback("order-2")
    with pytest.raises(HalfConflict) as caught:
        producer.commit("order-2")
    assert caught.value.state == "rolled-back"
    found = halves(broker)["order-2"]
    assert (found.state, found.reason, found.destination) == ("rolled-back", "no shoes", QUEUE)
    for unknown in ("order-3", b"order-2"):  # an id of another type is another id
        with pytest.raises(HalfUnknown):
            producer.commit(unknown)
    assert shipped(connection) == []


def test_names_that_cannot_be(connection: BlockingConnection) -> None:
    """A group by its grammar, a destination by the broker's; a producer that was closed makes no links."""
    with pytest.raises(WrongUse, match="expected a group of 1 to 64"):
        connection.producer("no/group")
    with connection.producer(PATIENT) as producer:
        with pytest.raises(LinkRefused, match="a sender to '\\$half/patient/\\$nope'"):
            producer.send_half("$nope", "one")
        producer.send_half(QUEUE, {"shoes": 2})
    with pytest.raises(WrongUse, match="expected an open producer of group 'patient', but it was closed"):
        producer.send_half(QUEUE, "three")


# --- the local transaction


@pytest.mark.parametrize(
    ("resolution", "bodies", "state"),
    [(COMMIT, ["one"], "committed"), (ROLLBACK, [], "rolled-back"), (UNKNOWN, [], "prepared")],
)
def test_the_local_transaction_decides(
    broker: RunningBroker,
    connection: BlockingConnection,
    producer: BlockingTransactionProducer,
    resolution: Resolution,
    bodies: list[str],
    state: str,
) -> None:
    """It runs once, after the put, with the id."""
    ran: list[Any] = []

    def local_transaction(half_id: Any) -> Resolution:
        ran.append((half_id, halves(broker)[half_id].state))
        return resolution

    receipt = producer.send_in_transaction(QUEUE, "one", local_transaction, application_properties={"a": 1})
    assert (receipt.resolution, receipt.told, receipt.error) == (resolution, resolution is not UNKNOWN, None)
    assert ran == [(receipt.half_id, "prepared")]
    assert halves(broker)[receipt.half_id].state == state
    assert shipped(connection) == bodies


@pytest.mark.parametrize("wrong", [ValueError("the database is away"), None, True])
def test_what_goes_wrong_in_the_local_transaction_decides_nothing(
    broker: RunningBroker, producer: BlockingTransactionProducer, wrong: Any
) -> None:
    """It may have happened or not: the error is raised, with a word on the half message. What was decided
    meanwhile is a conflict, which nobody may miss; where it was decided before, nothing runs.
    """

    def local_transaction(half_id: Any) -> Resolution:
        if isinstance(wrong, Exception):
            raise wrong
        return wrong  # type: ignore[no-any-return]

    with pytest.raises((ValueError, TypeError)) as caught:
        producer.send_in_transaction(QUEUE, "one", local_transaction, half_id="order-1")
    assert caught.value.__notes__ == [
        "half message 'order-1' of group 'patient' is not resolved: the broker will ask a checker about it"
    ]
    assert halves(broker)["order-1"].state == "prepared"
    ran: list[Any] = []

    def too_slow(half_id: Any) -> Resolution:
        ran.append(half_id)
        with connect(broker.url) as other, other.producer(PATIENT) as another:
            another.rollback(half_id)
        return COMMIT

    for _ in range(2):
        with pytest.raises(HalfConflict) as conflict:
            producer.send_in_transaction(QUEUE, "one", too_slow, half_id="order-2")
        assert conflict.value.state == "rolled-back"
    assert ran == ["order-2"]


@pytest.mark.parametrize("when", ["before the commit", "after it"])
def test_a_broker_that_cannot_be_told_is_no_error_of_the_local_transaction(when: str) -> None:
    """The receipt says that it was not told; the check-back finds out, and nothing is shipped twice."""
    faults = ScriptedFaults()
    with shop_broker(faults) as broker:
        with connect(broker.url, timeout_s=WAIT_S) as connection, connection.producer(GROUP) as producer:

            def local_transaction(half_id: Any) -> Resolution:
                if when == "after it":
                    faults.reset_after_commit()
                else:
                    faults.reset_connections()
                return COMMIT

            receipt = producer.send_in_transaction(QUEUE, "one", local_transaction)
            assert (receipt.resolution, receipt.told) == (COMMIT, False)
            assert isinstance(receipt.error, Gone)
        table = Table(COMMIT)
        with (
            connect(broker.url, timeout_s=WAIT_S) as connection,
            connection.producer(GROUP, table.check) as again,
        ):
            if when == "before the commit":
                assert table.next().half_id == receipt.half_id
            again.commit(receipt.half_id)
            assert shipped(connection) == ["one"]


# --- check-back


@pytest.mark.parametrize("by_outcome", [False, True])
@pytest.mark.parametrize(("answer", "bodies"), [(COMMIT, ["one"]), (ROLLBACK, [])])
def test_the_checker_decides(
    broker: RunningBroker,
    connection: BlockingConnection,
    by_outcome: bool,
    answer: Resolution,
    bodies: list[str],
) -> None:
    """It is asked what became of a half message that nobody resolved, with all that was put."""
    table = Table(answer)
    with connect(broker.url) as dying, dying.producer(GROUP) as gone:
        gone.send_half(QUEUE, "one", half_id="order-1", application_properties={"OrderId": "1"})
    with connection.producer(GROUP, table.check, by_outcome=by_outcome) as producer:
        half = table.next()
        assert (half.half_id, half.group, half.destination, half.attempt) == ("order-1", GROUP, QUEUE, 1)
        assert (half.body, half.body_omitted) == ("one", False)
        assert half.application_properties == {"OrderId": "1"}
        assert half.deadline_ms > half.age_ms >= 0
        # A thread is asked one thing at a time: whoever is asked next has had the first one decided.
        producer.send_half(QUEUE, "two", half_id="order-2")
        assert table.next().half_id == "order-2"
        found = halves(broker, GROUP)["order-1"]
        assert found.state == ("committed" if answer is COMMIT else "rolled-back")
        assert found.resolver == "check"
        assert shipped(connection)[:1] == bodies


@pytest.mark.parametrize("by_outcome", [False, True])
def test_what_a_checker_does_not_know_is_asked_again(
    connection: BlockingConnection, by_outcome: bool
) -> None:
    """Unknown, an exception and an answer that is none are each one attempt; errors are told."""
    table = Table(UNKNOWN, ValueError("the table is away"), "commit", COMMIT)
    with connection.producer(
        GROUP, table.check, by_outcome=by_outcome, on_check_error=table.failed
    ) as producer:
        producer.send_half(QUEUE, "one", half_id="order-1")
        assert [table.next().attempt for _ in range(4)] == [1, 2, 3, 4]
        first, second = (table.errors.get(timeout=WAIT_S) for _ in range(2))
        assert first[0] is not None and first[0].half_id == "order-1"
        assert str(first[1]) == "the table is away" and isinstance(second[1], TypeError)
        receiver = connection.open_receiver(QUEUE)
        assert receiver.receive(WAIT_S).body == "one"


def test_checks_are_answered_in_as_many_threads_as_wanted(connection: BlockingConnection) -> None:
    """A slow checker holds up no more than its own thread."""
    both = threading.Barrier(3)

    def check(half: Any) -> Resolution:
        both.wait(WAIT_S)
        return COMMIT

    with connection.producer(GROUP, check, check_threads=2) as producer:
        for number in range(2):
            producer.send_half(QUEUE, number)
        both.wait(WAIT_S)
        receiver = connection.open_receiver(QUEUE)
        for _ in range(2):
            receiver.accept(receiver.receive(WAIT_S))


def test_closing_leaves_a_check_to_somebody_else(broker: RunningBroker) -> None:
    """The answer that comes too late decides nothing, and is no error."""
    gate = Gate()
    with connect(broker.url, timeout_s=WAIT_S) as connection:
        producer = connection.producer(GROUP, gate.check, by_outcome=True)
        with producer:
            producer.send_half(QUEUE, "one", half_id="order-1")
            assert gate.entered.wait(WAIT_S)
            closing = threading.Thread(target=producer.close)
            closing.start()
            table = Table(ROLLBACK)
            with connect(broker.url) as other, other.producer(GROUP, table.check) as another:
                assert table.next().half_id == "order-1"
                another.rollback("order-1")
            gate.leave.set()
            closing.join(WAIT_S)
            producer.wait(WAIT_S)
    assert halves(broker, GROUP)["order-1"].state == "rolled-back"


def test_a_checker_whose_connection_ends_says_so() -> None:
    """Whoever only waits is told, and the end of the block tells it to everybody else."""
    with shop_broker() as broker, connect(broker.url, timeout_s=WAIT_S) as connection:
        with pytest.raises(ConnectionGone, match="amqp:connection:forced"):
            with connection.producer(GROUP, Table(COMMIT).check) as producer:
                broker.stop()
                with pytest.raises(ConnectionGone, match="amqp:connection:forced"):
                    producer.wait(WAIT_S)


def test_an_error_of_the_error_handler_is_raised(connection: BlockingConnection) -> None:
    """Nobody else could hear it."""
    table = Table(ValueError("the table is away"))

    def failed(half: Any, error: Exception) -> None:
        raise RuntimeError("the handler, too")

    with pytest.raises(RuntimeError, match="the handler, too"):
        with connection.producer(GROUP, table.check, on_check_error=failed) as producer:
            producer.send_half(QUEUE, "one")
            with pytest.raises(RuntimeError):
                producer.wait(WAIT_S)

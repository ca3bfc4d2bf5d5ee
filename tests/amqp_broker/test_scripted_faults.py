"""Scripted faults: each happens exactly when it was told to, around a real broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from amqp_broker.embedding import RunningBroker, memory_config, running_broker
from amqp_broker.frames import (
    RECEIVER,
    Accepted,
    Attach,
    Begin,
    Disposition,
    Flow,
    Header,
    Open,
    Transfer,
    encode_message,
)
from amqp_broker.persistence import Store, StoreFailed
from amqp_broker.testing import FrameTrace, ScriptedFaults
from amqp_broker.testing.blocking_peer import PATIENCE_S, BlockingPeer, ConnectionLost
from amqp_broker.testing.peer import PeerError, PeerSender
from tests.support.jumping_broker import on_disk

MESSAGE = encode_message(header=Header(durable=True), body=b"hello")


@contextmanager
def sending(broker: RunningBroker, queue: str = "orders") -> Iterator[tuple[BlockingPeer, PeerSender]]:
    """A connection with a sender that has credit."""
    connection = BlockingPeer.connect(broker.host, broker.port)
    try:
        sender = connection.begin().attach_sender("s", queue)
        connection.pump_until(lambda: sender.may_send)
        yield connection, sender
    finally:
        connection.abort()


def pump_while_waiting(connection: BlockingPeer, reached: Callable[[], object]) -> None:
    """Pump until something happens that this client does not hear of."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, "it did not happen"
        connection.pump(0.05)


def accepted(connection: BlockingPeer, sender: PeerSender) -> None:
    """Send one message and wait for its outcome."""
    number = sender.send(MESSAGE)
    connection.pump_until(lambda: number in sender.outcomes)


def stored(broker: RunningBroker, at_least: int) -> int:
    """Messages that another client finds; those that a commit is about to bring are waited for."""
    with BlockingPeer.connect(broker.host, broker.port) as connection:
        receiver = connection.begin().attach_receiver("r", "orders", credit=100)
        connection.pump_until(lambda: len(receiver.deliveries) >= at_least)
        receiver.drain_all(receiver.credit)
        return len(receiver.deliveries)


@pytest.mark.parametrize("happened", [False, True])
def test_a_failed_commit_ends_the_broker_and_the_restart_decides(happened: bool, tmp_path: Path) -> None:
    """Nobody is told an outcome; afterwards the message is there wholly or not at all."""
    faults = ScriptedFaults()
    with pytest.raises(StoreFailed, match="scripted"):
        with running_broker(on_disk(tmp_path), faults=faults) as broker:
            with sending(broker) as (connection, sender):
                accepted(connection, sender)
                faults.fail_commit(happened=happened)
                number = sender.send(MESSAGE)
                with pytest.raises((ConnectionLost, PeerError)):
                    connection.pump_until(lambda: number in sender.outcomes)
    with running_broker(on_disk(tmp_path)) as broker:
        count = 2 if happened else 1
        assert stored(broker, count) == count


@pytest.mark.parametrize("after", [False, True])
def test_a_reset_around_a_commit_loses_the_answer_and_not_the_message(after: bool) -> None:
    """The client cannot know; the message is there once."""
    faults = ScriptedFaults()
    with running_broker(faults=faults) as broker:
        with sending(broker) as (connection, sender):
            accepted(connection, sender)
            (faults.reset_after_commit if after else faults.reset_before_commit)()
            number = sender.send(MESSAGE)
            with pytest.raises(ConnectionLost):
                connection.pump_until(lambda: number in sender.outcomes)
        assert stored(broker, 2) == 2


def test_no_outcome_leaves_while_the_commit_is_held() -> None:
    """Law 4: a promise to a peer leaves only after the commit returned."""
    trace = FrameTrace()
    faults = ScriptedFaults(trace)
    with running_broker(faults=faults) as broker, sending(broker) as (connection, sender):
        accepted(connection, sender)
        before = len(_dispositions(trace))
        with faults.held_commits():
            number = sender.send(MESSAGE)
            connection.pump(0.2)
            assert number not in sender.outcomes
            assert len(_dispositions(trace)) == before
        connection.pump_until(lambda: number in sender.outcomes)


def _dispositions(trace: FrameTrace) -> list[Disposition]:
    return [frame for frame in trace.performatives("S") if isinstance(frame, Disposition)]


def _credits(trace: FrameTrace) -> list[int | None]:
    flows = [frame for frame in trace.performatives("S") if isinstance(frame, Flow)]
    return [flow.link_credit for flow in flows if flow.handle is not None]


def test_a_dropped_disposition_is_lost_alone() -> None:
    """The first outcome never comes, the second one does."""
    faults = ScriptedFaults()
    faults.drop(Disposition)
    with running_broker(faults=faults) as broker, sending(broker) as (connection, sender):
        first = sender.send(MESSAGE)
        pump_while_waiting(connection, lambda: faults.frames_lost)
        accepted(connection, sender)
        assert first not in sender.outcomes


def test_withheld_credit_reads_zero() -> None:
    """The client may attach and not send."""
    trace = FrameTrace()
    faults = ScriptedFaults(trace)
    faults.grant_no_credit()
    with running_broker(faults=faults) as broker:
        with BlockingPeer.connect(broker.host, broker.port) as connection:
            sender = connection.begin().attach_sender("s", "orders")
            pump_while_waiting(connection, lambda: _credits(trace))
            assert (sender.credit, _credits(trace)) == (0, [0])


def test_a_link_is_detached_at_the_nth_transfer_with_the_error() -> None:
    """The second transfer's link goes; its session lives and can attach again."""
    faults = ScriptedFaults()
    faults.detach_at(2, "amqp:resource-limit-exceeded", "enough")
    with running_broker(faults=faults) as broker, sending(broker) as (connection, sender):
        accepted(connection, sender)
        with pytest.raises(PeerError, match="enough"):
            accepted(connection, sender)


def test_a_connection_is_reset_when_a_frame_arrives() -> None:
    """The broker never sees the transfer."""
    faults = ScriptedFaults()
    faults.reset_at(Transfer, 2)
    with running_broker(faults=faults) as broker:
        with sending(broker) as (connection, sender):
            accepted(connection, sender)
            number = sender.send(MESSAGE)
            with pytest.raises(ConnectionLost):
                connection.pump_until(lambda: number in sender.outcomes)
        assert stored(broker, 1) == 1


def test_the_trace_of_a_broker_shows_both_sides() -> None:
    """Recorded with the faults, on every connection."""
    trace = FrameTrace()
    with running_broker(faults=ScriptedFaults(trace)) as broker, sending(broker) as (connection, sender):
        accepted(connection, sender)
    expected = [Open, Begin, Attach, Transfer]
    assert [type(frame) for frame in trace.performatives("C") if type(frame) in expected] == expected
    broker_side = trace.performatives("S")
    (attach,) = [performative for performative in broker_side if isinstance(performative, Attach)]
    assert attach.role is RECEIVER
    assert any(isinstance(performative, Flow) for performative in broker_side)
    assert any(
        isinstance(performative, Disposition) and isinstance(performative.state, Accepted)
        for performative in broker_side
    )


class CountingStore:
    """As much of a store as a commit needs."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def commit(self) -> None:
        """Remember it."""
        self.done.append("commit")

    def abandon(self) -> None:
        """Remember it."""
        self.done.append("abandon")


def test_commits_are_counted_from_when_the_fault_was_told() -> None:
    """The third from now, once."""
    faults = ScriptedFaults()
    inner = CountingStore()
    store: Store = faults.wrap_store(inner)  # type: ignore[arg-type]
    store.commit()
    faults.fail_commit(2)
    store.commit()
    with pytest.raises(StoreFailed):
        store.commit()
    store.commit()
    assert inner.done == ["commit", "commit", "abandon", "commit"]


def test_held_commits_wait_in_their_own_thread() -> None:
    """They go on when the block ends, and not before."""
    faults = ScriptedFaults()
    inner = CountingStore()
    store: Store = faults.wrap_store(inner)  # type: ignore[arg-type]
    done = threading.Event()

    def commit() -> None:
        store.commit()
        done.set()

    thread = threading.Thread(target=commit)
    with faults.held_commits():
        thread.start()
        assert not done.wait(0.05)
        assert inner.done == []
    assert done.wait(PATIENCE_S)
    thread.join()


def test_memory_config_takes_changes() -> None:
    """Loopback, ephemeral, in memory, and what the caller says."""
    config = memory_config(container_id="mine")
    assert config.memory
    assert config.container_id == "mine"
    assert config.listeners[0].port == 0

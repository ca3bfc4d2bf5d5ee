"""Sequenced streams when something goes wrong: a full disk, answers that are lost, damaged rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest

from amqp_broker.configuration import BrokerConfig
from amqp_broker.frames import Disposition
from amqp_broker.persistence.store_file import DATABASE_NAME
from amqp_broker.testing import ScriptedFaults, memory_config
from amqp_broker.testing.blocking_peer import ConnectionLost
from amqp_broker.testing.peer import PeerError
from tests.support.broker_clients import error_of, session_to, settle_down
from tests.support.controllers import Controller
from tests.support.jumping_broker import JumpingBroker, stopping
from tests.support.sequenced import annotated, attached_sender, chain, left_at, outcomes, stream_of, words


@pytest.fixture
def config(tmp_path: Path) -> Iterator[BrokerConfig]:
    """A broker with a store on disk."""
    yield attrs.evolve(memory_config(), memory=False, data_dir=str(tmp_path / "data"))


@contextmanager
def full_disk(faults: ScriptedFaults) -> Iterator[None]:
    """Inside the block every commit is refused."""
    faults.refuse_commit(1, count=1_000_000)
    yield
    faults._commit_errors.clear()


def test_a_full_disk_at_a_discharge_moves_nothing(config: BrokerConfig) -> None:
    """It is rolled back, and the same transaction comes through the next time."""
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        controller = Controller(session)
        sender = session.attach_sender("s", "q")
        payloads = [annotated(place) for place in chain(1, 3)]
        txn_id = controller.declare()
        outcomes(sender, payloads, txn_id=txn_id)
        with full_disk(broker.faults):
            assert error_of(controller.discharge(txn_id)).condition == "amqp:transaction:rollback"
        assert stream_of(broker, "q") is None
        txn_id = controller.declare()
        outcomes(sender, payloads, txn_id=txn_id)
        controller.commit(txn_id)
        assert left_at(session, "q", 3) == ["1.1", "1.2", "1.3"]


@pytest.mark.parametrize("after", [True, False])
def test_a_connection_that_is_cut_around_the_commit(config: BrokerConfig, after: bool) -> None:
    """Whether the answer got lost or the messages: the sender attaches, and knows which."""
    with stopping(JumpingBroker(config)) as broker:
        with session_to(broker) as session:
            sender = session.attach_sender("s", "q")
            outcomes(sender, [annotated((1, 1, 0))])
            (broker.faults.reset_after_commit if after else broker.faults.reset_before_commit)(1)
            with pytest.raises(ConnectionLost):
                outcomes(sender, [annotated(place) for place in chain(2, 4)])
        with session_to(broker) as session:
            again = attached_sender(session, "s", "q", "s")
            attach = again.remote_attach
            assert attach is not None and attach.properties is not None
            assert attach.properties["seq-no"].value == 4
            resent = outcomes(again, [annotated(place, None) for place in chain(2, 5)])
            assert words(resent) == ["accepted"] * 4
            assert left_at(session, "q", 5) == ["1.1", "1.2", "1.3", "1.4", "1.5"]


def test_a_disposition_that_is_lost(config: BrokerConfig) -> None:
    """The sender that resends on the same link is told once more."""
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        sender = session.attach_sender("s", "q")
        outcomes(sender, [annotated((1, 1, 0))])
        broker.faults.drop(Disposition)
        session.connection.pump_until(lambda: sender.may_send)
        sender.send(annotated((1, 2, 1)))
        settle_down(broker, session)
        assert broker.faults.frames_lost == 1
        assert words(outcomes(sender, [annotated((1, 2, 1)), annotated((1, 3, 2))])) == ["accepted"] * 2
        assert left_at(session, "q", 3) == ["1.1", "1.2", "1.3"]


def test_a_damaged_row_refuses_its_stream_only(config: BrokerConfig) -> None:
    """amqp:internal-error for its messages, its links and transactions that use it; other streams go on, and
    a reset mends it.
    """
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        outcomes(session.attach_sender("s", "q"), [annotated((1, 1, 0))])
    store = sqlite3.connect(Path(config.data_dir) / DATABASE_NAME)
    with store:
        assert store.execute("UPDATE stream SET seq_no = seq_no + 1").rowcount == 1
    store.close()
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        sender = session.attach_sender("s", "q")
        told = outcomes(sender, [annotated((1, 2, 1)), annotated((1, 1, 0), "t"), annotated((1, 3, 2))])
        assert words(told) == ["amqp:internal-error", "accepted", "amqp:internal-error"]
        with pytest.raises(PeerError, match="internal-error"):
            attached_sender(session, "refused", "q", "s")
        controller = Controller(session)
        txn_id = controller.declare()
        (state,) = outcomes(sender, [annotated((1, 2, 1))], txn_id=txn_id)
        assert error_of(state.outcome).condition == "amqp:internal-error"
        assert error_of(controller.discharge(txn_id)).condition == "amqp:transaction:rollback"

        async def reset(running: object) -> object:
            return await running.reset_stream("q", "s")  # type: ignore[attr-defined]

        assert broker.call(reset) is True
        assert words(outcomes(sender, [annotated((1, 1, 0))])) == ["accepted"]

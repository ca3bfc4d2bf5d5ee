"""What our unsettled map says is a promise: it leaves after the commit of what it tells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from amqp_broker.frames import RECEIVER, SENDER, Accepted, Source, Target
from tests.support.broker_clients import counts, message, receive, send, session_to
from tests.support.jumping_broker import JumpingBroker, on_disk, stopping
from tests.support.resuming import LASTING, SECOND

QUEUE = "orders"


@pytest.fixture(name="broker")
def _broker(tmp_path: Path) -> Iterator[JumpingBroker]:
    with stopping(JumpingBroker(on_disk(tmp_path))) as broker:
        yield broker


def test_an_outcome_is_told_when_it_is_stored(broker: JumpingBroker) -> None:
    """The receiver came to it while the link was gone; our attach says that it is done."""
    with session_to(broker) as session:
        send(session.attach_sender("s", QUEUE), b"a", durable=True)
        link = session.attach_receiver(
            "r", QUEUE, credit=1, source=Source(address=QUEUE, **LASTING), rcv_settle_mode=SECOND
        )
        (delivery,) = receive(link, 1)
        session.connection.abort()
    broker.rest()
    with session_to(broker) as session:
        source = Source(address=QUEUE, **LASTING)
        with broker.faults.held_commits():
            again = session.put_attach(
                RECEIVER, "r", QUEUE, source=source, rcv_settle_mode=SECOND,
                unsettled={delivery.delivery_tag: Accepted()},
            )  # fmt: skip
            session.connection.pump(0)
            assert again.remote_attach is None
        session.connection.pump_until(lambda: again.remote_attach is not None)
        assert counts(broker, QUEUE)[0] == 0


def test_a_posting_under_way_is_waited_for(broker: JumpingBroker) -> None:
    """The connection broke before the commit: whether the message is there is said when that is known."""
    target = Target(address=QUEUE, **LASTING)
    with session_to(broker) as session:
        link = session.attach_sender("s", QUEUE, target=target, rcv_settle_mode=SECOND)
        session.connection.pump_until(lambda: link.may_send)
        with broker.faults.held_commits():
            link.send(message(b"a", durable=True), delivery_tag=b"a")
            session.connection.flush()
            broker.rest()
            session.connection.abort()
            broker.rest()
            with session_to(broker) as other:
                again = other.put_attach(
                    SENDER, "s", QUEUE, target=target, rcv_settle_mode=SECOND, unsettled={b"a": None}
                )
                other.connection.pump(0)
                assert again.remote_attach is None
                other.connection.abort()
    with session_to(broker) as session:
        last = session.attach_sender(
            "s", QUEUE, target=target, rcv_settle_mode=SECOND, unsettled={b"a": None}
        )
        assert last.remote_attach is not None
        assert last.remote_attach.unsettled == {b"a": Accepted()}
        assert counts(broker, QUEUE)[0] == 1


def test_what_is_told_to_a_link_that_leaves_is_remembered(broker: JumpingBroker) -> None:
    """The outcome goes out right before the answer to a detach: the sender settles it on its next link."""
    target = Target(address=QUEUE, **LASTING)
    with session_to(broker) as session:
        link = session.attach_sender("s", QUEUE, target=target, rcv_settle_mode=SECOND)
        session.connection.pump_until(lambda: link.may_send)
        link.send(message(b"a", durable=True), delivery_tag=b"a")
        link.detach(closed=False)
        again = session.attach_sender(
            "s", QUEUE, target=target, rcv_settle_mode=SECOND, unsettled={b"a": None}
        )
        assert again.remote_attach is not None
        assert again.remote_attach.unsettled == {b"a": Accepted()}

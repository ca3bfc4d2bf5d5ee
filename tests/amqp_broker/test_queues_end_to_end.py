"""Queues as clients see them: a real broker, real sockets, a client that knows only the codec. What single
sinks and sources do is asked in `nodes`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from amqp_broker.frames import Accepted, Message
from amqp_broker.testing import running_broker
from tests.support.broker_clients import bodies, receive, send, session_to
from tests.support.jumping_broker import on_disk


def test_first_in_first_out_and_accepted() -> None:
    """Messages are delivered in the order of the producer's link, and the sender is told accepted (2.2.2); a
    receiver that leaves settling to the broker is told settled (2.6.12).
    """
    with running_broker() as broker, session_to(broker) as session:
        sender = session.attach_sender("s", "fifo")
        numbers = send(sender, b"1", b"2", b"3", durable=True)
        assert [type(sender.outcomes[number]) for number in numbers] == [Accepted] * 3
        receiver = session.attach_receiver("r", "fifo", credit=10)
        got = receive(receiver, 3)
        assert bodies(got) == [b"1", b"2", b"3"]
        receiver.settle(got, Accepted(), settled=False)
        session.connection.pump_until(lambda: len(receiver.confirmed) == 3)
        receiver.drain_all(10)
        assert not receiver.deliveries and receiver.delivery_count == 13


@pytest.mark.parametrize("how", ["link", "session", "connection", "transport"])
def test_what_was_unsettled_returns_to_its_place(how: str) -> None:
    """When a consumer goes, what it held is delivered again, in the old order, before what stood behind
    it.
    """
    with running_broker() as broker:
        with session_to(broker) as session:
            send(session.attach_sender("s", "q"), b"1", b"2", b"3", durable=True)
        with session_to(broker) as session:
            receiver = session.attach_receiver("r", "q", credit=2)
            receive(receiver, 2)
            if how == "link":
                receiver.detach()
            elif how == "session":
                session.end()
            elif how == "connection":
                session.connection.close()
        with session_to(broker) as session:
            assert bodies(receive(session.attach_receiver("r", "q", credit=3), 3)) == [b"1", b"2", b"3"]


def test_messages_survive_a_restart(tmp_path: Path) -> None:
    """What was accepted is there after a clean stop, in order, and no longer claims its first acquirer."""
    with running_broker(on_disk(tmp_path)) as broker, session_to(broker) as session:
        send(session.attach_sender("s", "kept"), b"1", b"2", b"3", durable=True)
        send(session.attach_sender("v", "kept"), b"volatile")
        receiver = session.attach_receiver("r", "kept", credit=1)
        receiver.settle(receive(receiver, 1), Accepted(), settled=False)
        session.connection.pump_until(lambda: receiver.confirmed)
    with running_broker(on_disk(tmp_path)) as broker, session_to(broker) as session:
        receiver = session.attach_receiver("r", "kept")
        receiver.drain_all(10)
        assert bodies(receiver.deliveries) == [b"2", b"3"]
        assert not any(Message(each.payload).header.first_acquirer for each in receiver.deliveries)


def test_sending_goes_on_when_the_session_window_opens() -> None:
    """A flow of the session alone (no handle) that opens the window lets every link of it go on (2.5.6)."""
    with running_broker() as broker, session_to(broker) as session:
        send(session.attach_sender("s", "window"), b"1", b"2", b"3")
        receiver = session.attach_receiver("r", "window")
        receiver.flow(5, incoming_window=2)
        assert bodies(receive(receiver, 2)) == [b"1", b"2"]
        assert not session.connection.pump(0.05) and not receiver.deliveries
        session.flow()
        assert bodies(receive(receiver, 1)) == [b"3"]

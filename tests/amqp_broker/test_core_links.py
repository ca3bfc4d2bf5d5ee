"""Links, sessions and temporary queues that end at awkward moments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from amqp_broker.authorisation import CONNECT, CREATE, RECEIVE
from amqp_broker.broker import Broker
from amqp_broker.configuration import AT_START, STRICT, AccessRule, ListenerConfig, QueuePolicy, UserConfig
from amqp_broker.connection_task import ConnectionTask
from amqp_broker.frames import SENDER, Attach, Rejected, Source, Target
from amqp_broker.persistence import StoreFull
from amqp_broker.testing import RunningBroker, ScriptedFaults, memory_config, running_broker
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.peer import PeerError, PeerReceiver, PeerSender
from amqp_broker.verifiers import make_verifier
from tests.support.broker_clients import (
    address_of,
    attach_with,
    bodies,
    message,
    receive,
    round_trip,
    send,
    session_to,
    settle_down,
)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker() as running:
        yield running


def test_a_link_that_ends_in_the_midst_of_a_read_ends_alone(broker: RunningBroker) -> None:
    """A settled message with malformed sections: its link is detached, and the attach behind it in the same
    read is answered.
    """
    with session_to(broker) as session:
        sender = session.attach_sender("s", "behind")
        session.connection.pump_until(lambda: sender.may_send)
        sender.send(b"\x00\x53\x75\xa0\xffshort", settled=True)
        attach = Attach(
            name="late",
            handle=7,
            role=SENDER,
            source=Source(),
            target=Target(address="behind"),
            initial_delivery_count=0,
        )
        session.put(attach)
        with pytest.raises(PeerError) as refused:
            round_trip(session)
        assert refused.value.scope.startswith("link")
        names = broker.call(
            lambda running: [link.name for task in running._connections for link in task.connection.links]
        )
        assert names == ["late"]


def test_a_sender_learns_that_a_temporary_queue_is_gone(broker: RunningBroker) -> None:
    """Who sends to a temporary queue is detached with amqp:resource-deleted when its owner goes (3.5.10)."""
    with session_to(broker) as session, session_to(broker, "other") as other:
        receiver = attach_with(session, "d", source=Source(dynamic=True))
        sender = other.attach_sender("s", address_of(receiver))
        other.connection.pump_until(lambda: sender.may_send)
        receiver.detach()
        with pytest.raises(PeerError) as gone:
            other.connection.pump_until(lambda: sender.detached)
        assert gone.value.error is not None and gone.value.error.condition == "amqp:resource-deleted"


def test_a_message_on_its_way_to_a_deleted_queue_is_not_accepted(broker: RunningBroker) -> None:
    """Nobody will ever get it, so its sender is not told that it was taken."""
    with session_to(broker) as session:
        receiver = attach_with(session, "d", source=Source(dynamic=True))
        sender = session.attach_sender("s", address_of(receiver))
        session.connection.pump_until(lambda: sender.may_send)
        session.put(_detach(receiver))
        number = sender.send(message(b"x"))
        with pytest.raises(PeerError):
            settle_down(broker, session)
        assert not sender.outcomes.get(number) or isinstance(sender.outcomes[number], Rejected)


def _detach(link: PeerSender | PeerReceiver) -> object:
    from amqp_broker.frames import Detach

    return Detach(handle=link.handle, closed=True)


def test_a_queue_is_made_although_the_one_who_asked_is_gone() -> None:
    """A connection that dies while its queue is being stored leaves a queue that others can use."""
    faults = ScriptedFaults()
    with running_broker(faults=faults) as broker:

        async def ask_and_go(running: Broker) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(running.nodes.queues.create, "orphan")
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()

        with faults.held_commits():
            broker.call(ask_and_go)
        with session_to(broker) as session:
            send(session.attach_sender("s", "orphan"), b"x", durable=True)
            assert bodies(receive(session.attach_receiver("r", "orphan", credit=1), 1)) == [b"x"]


def test_a_queue_that_the_disk_has_no_room_for_is_refused_at_its_link() -> None:
    """A full disk refuses the link with amqp:resource-limit-exceeded; the connection goes on."""
    faults = ScriptedFaults()
    with running_broker(faults=faults) as broker, session_to(broker) as session:
        faults.refuse_commit(1)
        with pytest.raises(PeerError) as refused:
            session.attach_sender("s", "no-room")
        assert refused.value.scope == "link s"
        assert refused.value.error is not None
        assert refused.value.error.condition == "amqp:resource-limit-exceeded"
        assert StoreFull.__name__ not in (refused.value.error.description or "")
        send(session.attach_sender("s2", "no-room"), b"x", durable=True)


def test_a_container_id_gives_no_right_to_the_links_of_others() -> None:
    """Links are stolen among connections of one user only: the container-id is what a peer claims."""
    verifier = str(make_verifier("SCRAM-SHA-256", "pw", 4096, b"salt of the test"))
    users = tuple(UserConfig(name=name, scram_sha_256=verifier) for name in ("ann", "bob"))
    rule = AccessRule(users=("*",), actions=(CONNECT, CREATE, RECEIVE))
    listener = ListenerConfig(url="amqp://127.0.0.1:0", plain_without_tls=True)
    config = memory_config(users=users, access_rules=(rule,), listeners=(listener,))
    with running_broker(config) as broker:
        ann = BlockingPeer.connect(
            broker.host, broker.port, container_id="same", login=("PLAIN", b"\0ann\0pw")
        )
        bob = BlockingPeer.connect(
            broker.host, broker.port, container_id="same", login=("PLAIN", b"\0bob\0pw")
        )
        with ann, bob:
            first = ann.begin()
            kept = first.attach_receiver("r", "queue", credit=1)
            bob.begin().attach_receiver("r", "queue2", credit=1)
            settle_down(broker, first)
            assert kept.detached is None


def test_dead_connections_leave_nothing_in_the_timers(broker: RunningBroker) -> None:
    """A connection that is gone is not kept in memory until a deadline that it once had."""
    for _ in range(5):
        with session_to(broker) as session:
            session.connection.close()

    def waiting(running: Broker) -> int:
        return sum(isinstance(entry[2], ConnectionTask) for entry in running.timers._heap)

    def count(running: Broker) -> int:
        return len(running._connections)

    while broker.call(count):
        pass
    assert broker.call(waiting) == 0


def test_queues_made_at_the_start_survive_a_restart(tmp_path: Path) -> None:
    """A queue of the configuration is made once; the next start finds it with its messages."""
    policies = (QueuePolicy(pattern="early", create=AT_START), QueuePolicy(pattern="**", create=STRICT))
    config = memory_config(memory=False, data_dir=str(tmp_path / "data"), queue_policies=policies)
    with running_broker(config) as broker, session_to(broker) as session:
        send(session.attach_sender("s", "early"), b"kept", durable=True)
    for _ in range(2):
        with running_broker(config) as broker, session_to(broker) as session:
            assert broker.call(lambda running: len(running.nodes.queues.queues())) == 1
            receiver = session.attach_receiver("r", "early", credit=1)
            assert bodies(receive(receiver, 1)) == [b"kept"]

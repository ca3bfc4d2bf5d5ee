"""Durable messages that pass piece by piece, from a sender to a file and from there to receivers, with all
that can become of them on the way.
"""

from __future__ import annotations

import errno
import gc
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attrs
import pytest
import trio

from amqp_broker import large_messages
from amqp_broker.authorisation import Principal
from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerConfig, ListenerConfig, QueuePolicy
from amqp_broker.configuration_limits import BrokerLimits
from amqp_broker.dead_letters.dead_letters import Making
from amqp_broker.embedding import RunningBroker, running_broker
from amqp_broker.frames import (
    Accepted,
    DeleteOnNoMessages,
    Error,
    Header,
    Message,
    Modified,
    Properties,
    Rejected,
    Released,
    Source,
    Symbol,
    Target,
    TransactionalState,
    Transfer,
    encode_message,
)
from amqp_broker.lifetime import Lifetime
from amqp_broker.links import Account
from amqp_broker.management.queue_operations import deletion
from amqp_broker.management.shown_messages import shown_message
from amqp_broker.operations.moving import Moved, fitting, posting
from amqp_broker.operations.operation import Refused, answer_to
from amqp_broker.persistence import Record, reader
from amqp_broker.persistence import octets_of as octets_of_records
from amqp_broker.persistence.open_bodies import PREFIX, BodyFile
from amqp_broker.persistence.spools import Spool
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from amqp_broker.queue import Queue, QueueLimits
from amqp_broker.testing.peer import PeerError, PeerSender, PeerSession
from amqp_broker.watching import Watcher
from tests.support.broker_clients import body_of, browse, message, receive, send, session_to, settle_down
from tests.support.controllers import Controller
from tests.support.streaming import (
    KIB,
    MIB,
    Taken,
    begin,
    behind_header,
    checksum,
    head_of,
    more,
    octets_of,
    send_large,
    streams,
)
from tests.support.topics import durable, selector

ANY = (ListenerConfig(url="amqp://127.0.0.1:0"),)
SIZE = 3 * MIB  # one read has at most 1 MiB
THERE = Properties(to="there")
POLICIES = (
    QueuePolicy(pattern="twice", max_deliveries=2, dead_letter_address="graves"),
    QueuePolicy(pattern="retaining", retention_ms=60_000),
)


def config_of(directory: Path, **limits: int) -> BrokerConfig:
    """A broker on disk that has messages of 64 KiB pass piece by piece."""
    return BrokerConfig(
        data_dir=str(directory), listeners=ANY, queue_policies=POLICIES,
        limits=BrokerLimits(**{"stream_body_bytes": 64 * KIB, **limits}),
    )  # fmt: skip


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """Such a one; what it leaves behind is whole."""
    with running_broker(config_of(tmp_path)) as running:
        yield running
    assert all("does not match its checksum" in finding for finding in verify_directory(tmp_path))


@pytest.fixture
def session(broker: RunningBroker) -> Iterator[PeerSession]:
    """A session to it."""
    with session_to(broker) as made:
        yield made


def body(size: int = SIZE) -> bytes:
    """The content of a large message."""
    return b"".join(octets_of(size))


def accepted(sender: PeerSender, size: int = SIZE, **fields: Any) -> object:
    """Send a large message, and wait for its outcome."""
    number, _ = send_large(sender, size, **fields)
    sender.session.connection.pump_until(lambda: number in sender.outcomes)
    return sender.outcomes[number]


def files_of(directory: Path) -> list[Path]:
    """The files with bodies."""
    return sorted(directory.glob(f"{PREFIX}*"))


def of_queue(broker: RunningBroker, look: Callable[[Queue], tuple[int, int]], name: str) -> tuple[int, int]:
    """What a queue says of itself."""

    def ask(running: Broker) -> tuple[int, int]:
        queue = running.nodes.queues.find(name)
        assert queue is not None
        return look(queue)

    found: tuple[int, int] = broker.call(ask)
    return found


def counts(broker: RunningBroker, name: str = "q") -> tuple[int, int]:
    """How many messages a queue has, and how many octets."""
    return of_queue(broker, lambda queue: (queue.message_count, queue.byte_count), name)


def room(broker: RunningBroker) -> int:
    """Octets that are on their way to the disk."""
    return int(broker.call(lambda running: running.nodes.spool_room.used_bytes))


def cached(broker: RunningBroker) -> int:
    """Octets of copies in memory."""
    return int(broker.call(lambda running: running.memory.cache.used_bytes))


def gone(broker: RunningBroker, session: PeerSession, directory: Path) -> bool:
    """Nothing is left of large messages, in memory or on the disk."""
    settle_down(broker, session)

    def idle(running: Broker) -> None:
        while running.writer._store.idle(0):
            pass

    broker.call(idle)
    return not files_of(directory) and room(broker) == 0


def comes_to(session: PeerSession, condition: Callable[[], bool]) -> None:
    """Wait for something that nobody tells."""
    for _ in range(400):
        if condition():
            return
        session.connection.pump(0.05)
    raise AssertionError("it did not come to that")


def expire(broker: RunningBroker, session: PeerSession, name: str, size: int) -> None:
    """Have a message of a queue expire, and wait until its dead letter is stored."""
    sender = session.attach_sender("short", name)
    session.connection.pump_until(lambda: sender.may_send)
    number = sender.send(encode_message(header=Header(durable=True, ttl=60), body=body()[:size]))
    session.connection.pump_until(lambda: number in sender.outcomes)
    comes_to(session, lambda: counts(broker, name) == (0, 0))
    settle_down(broker, session)


def test_it_comes_as_it_was_sent_among_others(
    broker: RunningBroker, session: PeerSession, tmp_path: Path
) -> None:
    """In its order, from the memory of its head or after a start; only its head is in memory."""
    sender = session.attach_sender("up", "q")
    send(sender, b"before", durable=True)
    assert accepted(sender, properties=THERE) == Accepted()
    send(sender, b"behind", durable=True)
    assert len(files_of(tmp_path)) == 1 and room(broker) == 0
    assert counts(broker)[0] == 3 and counts(broker)[1] > SIZE and cached(broker) < 4 * KIB
    receiver = session.attach_receiver("down", "q", credit=10)
    first, large, last = receive(receiver, 3)
    assert (body_of(first), body_of(last)) == (b"before", b"behind")
    assert behind_header(large.payload) == behind_header(head_of(SIZE, properties=THERE)) + body()
    header = Message(large.payload).header
    assert (header.durable, header.first_acquirer, header.delivery_count) == (True, True, 0)
    receiver.settle([first, large, last])
    assert gone(broker, session, tmp_path)
    assert counts(broker) == (0, 0) and cached(broker) == 0


def test_it_is_there_after_a_start(tmp_path: Path) -> None:
    """And its head alone is read; all that is counted fits what is there."""
    for again in range(2):
        with running_broker(config_of(tmp_path)) as broker, session_to(broker) as session:
            if not again:
                assert accepted(session.attach_sender("up", "q"), properties=THERE) == Accepted()
                continue
            before = counts(broker)
            receiver = session.attach_receiver("down", "q", credit=1)
            (found,) = receive(receiver, 1)
            assert behind_header(found.payload) == behind_header(head_of(SIZE, properties=THERE)) + body()
            assert not Message(found.payload).header.first_acquirer
            assert counts(broker) == before and cached(broker) < KIB
            receiver.settle(found)
            assert gone(broker, session, tmp_path) and counts(broker) == (0, 0)
    assert verify_directory(tmp_path) == []


def test_released_and_failed_ones_come_again(broker: RunningBroker, session: PeerSession) -> None:
    """To another consumer, with another header and more annotations; also while a browser is sent it."""
    accepted(session.attach_sender("up", "q"), message_annotations={Symbol("x-opt-a"): "1"})
    with session_to(broker, "another") as other:
        looks = browse(other, "looks", "q", credit=1)
        one = session.attach_receiver("one", "q", credit=1)
        (first,) = receive(one, 1)
        one.settle(first, Released())
        two = other.attach_receiver("two", "q", credit=0)
        settle_down(broker, session, other)
        two.flow(1)
        (second,) = receive(two, 1)
        added: dict[Any, Any] = {Symbol("x-opt-b"): "2"}
        two.settle(second, Modified(delivery_failed=True, message_annotations=added))
        settle_down(broker, session, other)
        one.flow(1)
        (third,) = receive(one, 1)
        header = Message(third.payload).header
        assert (header.delivery_count, header.first_acquirer) == (1, False)
        assert Message(third.payload).message_annotations == {Symbol("x-opt-a"): "1", Symbol("x-opt-b"): "2"}
        (seen,) = receive(looks, 1)
        assert {body_of(each) for each in (first, second, third, seen)} == {body()}


@pytest.mark.parametrize("ends", ["abort", "detach", "cut"])
def test_what_does_not_come_to_its_end_leaves_nothing(
    broker: RunningBroker, session: PeerSession, tmp_path: Path, ends: str
) -> None:
    """Its file and the room for it go; the next message comes."""
    with session_to(broker, "breaks") as breaks:
        sender = breaks.attach_sender("up", "q")
        breaks.connection.pump_until(lambda: sender.may_send)
        begin(sender, SIZE)
        more(sender, body()[: 1_500 * KIB])
        session.connection.pump(0)
        settle_down(broker, session)
        assert room(broker) > 0 and len(files_of(tmp_path)) == 1
        if ends == "abort":
            sender.send_more(aborted=True)
            assert accepted(sender) == Accepted()
        elif ends == "detach":
            sender.detach()
        else:
            breaks.connection.abort()
    if ends == "abort":
        receiver = session.attach_receiver("down", "q", credit=2)
        (found,) = receive(receiver, 1)
        receiver.settle(found)
        assert body_of(found) == body()
    else:
        session.attach_sender("makes", "q")
    assert gone(broker, session, tmp_path), (files_of(tmp_path), room(broker))
    assert counts(broker) == (0, 0)


@pytest.mark.parametrize("octets", [b"\x00\x53\x73\x45", b"\x00\x53\x75\xa1\x01x", b"rubbish!"])
def test_a_malformed_one_is_rejected_when_it_is_complete(
    broker: RunningBroker, session: PeerSession, tmp_path: Path, octets: bytes
) -> None:
    """Wherever it is wrong; what was written of it goes, and the link goes on."""
    sender = session.attach_sender("up", "q")
    session.connection.pump_until(lambda: sender.may_send)
    number, _ = begin(sender, SIZE)
    more(sender, body())
    more(sender, octets, last=True)
    session.connection.pump_until(lambda: number in sender.outcomes)
    outcome = sender.outcomes[number]
    assert isinstance(outcome, Rejected) and outcome.error is not None
    assert outcome.error.condition == "amqp:decode-error"
    assert gone(broker, session, tmp_path)
    send(sender, b"good", durable=True)
    assert counts(broker)[0] == 1


@pytest.mark.parametrize("parted", [False, True])
def test_a_long_footer_is_taken_however_it_comes(
    broker: RunningBroker, session: PeerSession, tmp_path: Path, parted: bool
) -> None:
    """In one read or in many: whether it passes piece by piece, nobody sees."""
    footer = {Symbol("x-opt-sum"): "y" * 100 * KIB}
    whole = encode_message(header=Header(durable=True), body=body(100 * KIB), footer=footer)
    sender = session.attach_sender("up", "q")
    session.connection.pump_until(lambda: sender.may_send)
    number = sender.send(whole[: 90 * KIB], more=True)
    for at in range(90 * KIB, len(whole), 30 * KIB):
        if parted:
            settle_down(broker, session)
            assert room(broker) > 0
        sender.send_more(whole[at : at + 30 * KIB], more=at + 30 * KIB < len(whole))
    session.connection.pump_until(lambda: number in sender.outcomes)
    assert sender.outcomes[number] == Accepted()
    receiver = session.attach_receiver("down", "q", credit=1)
    (found,) = receive(receiver, 1)
    assert Message(found.payload).footer == footer and body_of(found) == body(100 * KIB)
    receiver.settle(found)
    assert gone(broker, session, tmp_path)


@pytest.mark.interpreted  # compiled, nobody else's `fits` is asked
@pytest.mark.parametrize("size", [40 * KIB, 50 * KIB])
def test_a_footer_for_which_there_is_no_memory_is_refused(
    broker: RunningBroker, session: PeerSession, tmp_path: Path, size: int
) -> None:
    """It is in memory while it is looked at, as it came and as what it says."""
    whole = encode_message(
        header=Header(durable=True), body=body(100 * KIB), footer={Symbol("x-opt-sum"): "y" * size}
    )
    sender = session.attach_sender("up", "q")
    session.connection.pump_until(lambda: sender.may_send)
    number = sender.send(whole[: 90 * KIB], more=True)
    settle_down(broker, session)
    assert room(broker) > 0
    with patch.object(Account, "fits", lambda account, octets: octets < 90 * KIB):
        sender.send_more(whole[90 * KIB :], more=False)
        session.connection.pump_until(lambda: number in sender.outcomes)
    outcome = sender.outcomes[number]
    if size == 40 * KIB:
        assert outcome == Accepted()
        return
    assert isinstance(outcome, Rejected) and outcome.error is not None
    assert outcome.error.condition == "amqp:resource-limit-exceeded"
    assert outcome.error.description is not None and "footer" in outcome.error.description
    assert gone(broker, session, tmp_path) and counts(broker) == (0, 0)


def test_tiny_transfers_of_one_read_are_written_together(broker: RunningBroker, session: PeerSession) -> None:
    """Two thousand of 64 octets each are looked at and written as few reads."""
    sender = session.attach_sender("up", "q")
    session.connection.pump_until(lambda: sender.may_send)
    number, _ = begin(sender, 225 * KIB)
    more(sender, body()[: 100 * KIB])
    settle_down(broker, session)
    written = []
    real = Spool.write

    def write(spool: Spool, piece: bytes) -> None:
        written.append(len(piece))
        real(spool, piece)

    with patch.object(Spool, "write", write):
        for left in reversed(range(2_000)):
            sender.send_more(bytes(64), more=left > 0)
        session.connection.pump_until(lambda: number in sender.outcomes)
    assert sender.outcomes[number] == Accepted()
    assert sum(written) == 125 * KIB and len(written) < 100


@pytest.mark.parametrize("reads", [1, 2])
@pytest.mark.parametrize("named", [False, True])
def test_who_watches_hears_of_it_however_it_comes(
    broker: RunningBroker, session: PeerSession, reads: int, named: bool
) -> None:
    """Of one with application-properties: whether it comes in one read or in several."""
    heard = []

    class Hears(Watcher):
        def came(self, queue: Queue, records: Sequence[Record]) -> None:
            heard.append((queue.name, len(records)))

    def watch(running: Broker) -> None:
        running.writer.watcher = Hears()

    broker.call(watch)
    sender = session.attach_sender("up", "q")
    session.connection.pump_until(lambda: sender.may_send)
    fields: dict[str, Any] = {"application_properties": {"a": "b"}} if named else {}
    payload = encode_message(header=Header(durable=True), body=bytes(100 * KIB), **fields)
    number = sender.send(payload[: 80 * KIB], more=True)
    if reads == 2:
        session.connection.flush()
        settle_down(broker, session)
        assert room(broker) > 0
    sender.send_more(payload[80 * KIB :], more=False)
    session.connection.pump_until(lambda: number in sender.outcomes)
    assert heard == [("q", 1)] * named


def test_the_room_for_what_is_on_its_way_has_a_bound(tmp_path: Path) -> None:
    """Where there is none for the largest message that may come, one waits in memory, as without it; one that
    has begun has room for its end, whatever others do.
    """
    config = config_of(tmp_path, spool_bytes=4 * MIB, max_message_size_bytes=4 * MIB)
    with running_broker(config) as broker, session_to(broker) as session:
        first, second = session.attach_sender("first", "q"), session.attach_sender("second", "q")
        session.connection.pump_until(lambda: first.may_send and second.may_send)
        for sender in (first, second):
            begin(sender, SIZE)
            more(sender, body()[: 1_500 * KIB])
            settle_down(broker, session)
            assert room(broker) == 4 * MIB and len(files_of(tmp_path)) == 1
        for sender in (second, first):
            more(sender, body()[1_500 * KIB :], last=True)
            settle_down(broker, session)
            assert [*sender.outcomes.values()] == [Accepted()]
        assert room(broker) == 0
        receiver = session.attach_receiver("down", "q", credit=2)
        assert [body_of(each) for each in receive(receiver, 2)] == [body()] * 2


def test_room_is_kept_for_what_a_link_was_told(broker: RunningBroker, session: PeerSession) -> None:
    """A limit that became smaller since holds for later links."""
    sender = session.attach_sender("up", "q")
    told = broker.call(lambda running: running.nodes.config.limits.max_message_size_bytes)

    def reload(running: Broker) -> None:
        limits = attrs.evolve(running.nodes.config.limits, max_message_size_bytes=MIB)
        running.nodes.config = attrs.evolve(running.nodes.config, limits=limits)

    session.connection.pump_until(lambda: sender.may_send)
    broker.call(reload)
    begin(sender, SIZE)
    more(sender, body()[: 1_500 * KIB])
    settle_down(broker, session)
    assert room(broker) == told
    more(sender, body()[1_500 * KIB :], last=True)
    settle_down(broker, session)
    assert [*sender.outcomes.values()] == [Accepted()] and room(broker) == 0


def test_without_room_for_the_largest_none_passes_piece_by_piece(tmp_path: Path) -> None:
    """A configuration with larger messages than `spool_bytes` means what it meant without: memory."""
    config = config_of(tmp_path, spool_bytes=4 * MIB, max_message_size_bytes=5 * MIB)
    with running_broker(config) as broker, session_to(broker) as session:
        sender = session.attach_sender("up", "q")
        with patch.object(SqliteStore, "begin_spool", side_effect=AssertionError("it is to wait in memory")):
            assert accepted(sender) == Accepted()
        receiver = session.attach_receiver("down", "q", credit=1)
        assert body_of(receive(receiver, 1)[0]) == body()


def test_a_full_disk_refuses_it_and_nothing_else(
    broker: RunningBroker, session: PeerSession, tmp_path: Path
) -> None:
    """As a message that is stored whole; what comes behind it is taken when there is room."""
    sender = session.attach_sender("up", "q")
    with patch.object(Spool, "write", side_effect=OSError(errno.ENOSPC, "no space")):
        outcome = accepted(sender)
    assert isinstance(outcome, Rejected) and outcome.error is not None
    assert outcome.error.condition == "amqp:resource-limit-exceeded"
    with patch.object(Spool, "finish", side_effect=OSError(errno.EIO, "broken")):
        outcome = accepted(sender)
    assert isinstance(outcome, Rejected) and outcome.error is not None
    assert outcome.error.condition == "amqp:internal-error"
    assert gone(broker, session, tmp_path)
    assert accepted(sender) == Accepted()


@pytest.mark.parametrize("ends", ["accepted", "detached"])
def test_a_disk_that_stalls_stops_only_what_follows(
    broker: RunningBroker, session: PeerSession, tmp_path: Path, ends: str
) -> None:
    """While octets of a message are synced, others send to the same peer as ever; what it says behind them is
    heard when the disk is done, or after `memory_wait_ms`: it would count as silent.
    """
    begun, may_end = threading.Event(), threading.Event()
    sync = Spool.sync

    def slow(spool: Spool) -> None:
        begun.set()
        may_end.wait()
        sync(spool)

    up, down = session.attach_sender("up", "q"), session.attach_receiver("down", "other", credit=9)
    with session_to(broker) as elsewhere, patch.object(Spool, "sync", slow), ExitStack() as stack:
        stack.callback(may_end.set)
        other = elsewhere.attach_sender("other", "other")
        session.connection.pump_until(lambda: up.may_send)
        number, _ = begin(up, 6 * MIB)
        more(up, body(6 * MIB)[: 4 * MIB + 100 * KIB])
        assert begun.wait(10)
        send(other, b"not behind it")
        assert body_of(receive(down, 1)[0]) == b"not behind it"
        waits = broker.call(lambda running: [each for each in running.connections() if each._syncing])
        assert len(waits) == 1
        if ends == "accepted":
            may_end.set()
            more(up, body(6 * MIB)[4 * MIB + 100 * KIB :], last=True)
            session.connection.pump_until(lambda: number in up.outcomes)
            assert up.outcomes[number] == Accepted()
        else:
            up.detach()  # which the broker hears while a worker has the file
            may_end.set()
            assert gone(broker, session, tmp_path)


def test_what_one_commit_may_have_to_sync_has_a_bound(tmp_path: Path) -> None:
    """Many messages together, none of which has much: what others have stored stands behind that commit."""

    def is_within(running: RunningBroker, octets: int) -> bool:
        unsynced: int = running.call(lambda inside: inside.nodes.spool_room.unsynced_bytes)
        return unsynced <= octets

    with (
        running_broker(config_of(tmp_path)) as broker, session_to(broker) as session,
        patch.object(large_messages, "UNSYNCED_BYTES_MAX", 4 * MIB),
        patch.object(large_messages, "SYNC_BYTES_MIN", 512 * KIB), ExitStack() as stack,
    ):  # fmt: skip
        for number in range(6):
            other = stack.enter_context(session_to(broker, str(number)))
            sender = other.attach_sender("up", "q")
            comes_to(other, partial(getattr, sender, "may_send"))
            begin(sender, SIZE)
            more(sender, body()[: 1_500 * KIB])
            settle_down(broker, other)
            comes_to(session, partial(is_within, broker, 4 * MIB + (number + 1) * 512 * KIB))
        stack.close()
        comes_to(session, lambda: gone(broker, session, tmp_path))
        assert broker.call(lambda running: len(running.nodes.spool_room.spools)) == 0


@pytest.mark.parametrize("ends", ["cut", "detached"])
def test_what_waits_to_be_synced_leaves_nothing(tmp_path: Path, ends: str) -> None:
    """So many files are synced at once; the connection of one that waits may end, or its link."""
    begun, may_end = threading.Event(), threading.Event()

    def slow(spool: Spool) -> None:
        begun.set()
        may_end.wait()

    with (
        patch.object(large_messages, "SYNCS_AT_ONCE", 1), running_broker(config_of(tmp_path)) as broker,
        session_to(broker) as session, session_to(broker, "other") as other,
        patch.object(Spool, "sync", slow), ExitStack() as stack,
    ):  # fmt: skip
        stack.callback(may_end.set)
        senders = [each.attach_sender("up", "q") for each in (session, other)]
        for sender in senders:
            comes_to(sender.session, partial(getattr, sender, "may_send"))
            begin(sender, 6 * MIB)
            more(sender, body(6 * MIB)[: 4 * MIB + 100 * KIB])
            assert begun.wait(10)

        def waiting(running: Broker) -> int:
            return running.nodes.spool_room.syncs.statistics().tasks_waiting

        comes_to(session, lambda: broker.call(waiting) == 1)
        if ends == "cut":
            other.connection.abort()
            comes_to(session, lambda: broker.call(waiting) == 0)
        else:
            senders[1].detach()
        senders[0].detach()
        may_end.set()
        comes_to(session, lambda: room(broker) == 0)
        assert gone(broker, session, tmp_path)
        assert broker.call(lambda running: [*running.writer._store._files._spools]) == []


def damage(path: Path) -> None:
    """Flip a bit in the middle."""
    with path.open("r+b") as file:
        file.seek(SIZE // 2)
        octet = file.read(1)
        file.seek(SIZE // 2)
        file.write(bytes((octet[0] ^ 8,)))


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("how", ["flipped", "gone"])
def test_a_damaged_one_is_never_delivered(
    broker: RunningBroker, session: PeerSession, tmp_path: Path, settled: bool, how: str
) -> None:
    """It is aborted at the latest before its last transfer, and put away; what is behind it comes."""
    sender = session.attach_sender("up", "q")
    accepted(sender)
    send(sender, b"behind", durable=True)
    (path,) = files_of(tmp_path)
    if how == "flipped":
        damage(path)
    else:
        os.rename(path, tmp_path / "elsewhere")
    receiver = session.attach_receiver("down", "q", credit=0, snd_settle_mode=1 if settled else 0)
    aborted = streams(receiver)
    receiver.flow(10)
    session.connection.pump_until(lambda: receiver.deliveries)
    found: Any = receiver.deliveries[0]
    assert len(receiver.deliveries) == 1 and isinstance(found, Taken) and found.size < 100
    assert len(aborted) == 1
    if not settled:
        receiver.settle([found.delivery_id])
    settle_down(broker, session)
    assert counts(broker) == (0, 0) and cached(broker) == 0
    if how == "gone":
        os.rename(tmp_path / "elsewhere", path)


@pytest.mark.parametrize("kind", ["plain", "settled", "durable"])
def test_a_want_of_descriptors_loses_nothing(
    broker: RunningBroker, session: PeerSession, tmp_path: Path, kind: str
) -> None:
    """The delivery is aborted, and the message comes again when there are some."""
    accepted(session.attach_sender("up", "q"))
    fields: dict[str, Any] = {"snd_settle_mode": 1} if kind == "settled" else {}
    if kind == "durable":
        fields["source"] = Source(address="q", expiry_policy="never", durable=2)
    receiver = session.attach_receiver("down", "q", credit=0, **fields)

    def no_more(file: BodyFile, octets: int, at: int) -> bytes:
        raise OSError(errno.EMFILE, "too many")

    with patch.object(large_messages, "UNREAD_S", 0.05), patch.object(BodyFile, "read", no_more):
        aborted = streams(receiver)
        receiver.flow(10)
        session.connection.pump_until(lambda: aborted)
        if kind != "durable":
            session.connection.pump_until(lambda: len(aborted) > 1)  # as long as there are none
    session.connection.pump_until(lambda: receiver.deliveries)
    found: Any = receiver.deliveries[0]
    assert len(receiver.deliveries) == 1
    assert found.size == len(behind_header(head_of(SIZE))) + SIZE and found.crc == checksum(SIZE)
    if kind != "settled":
        receiver.settle([found.delivery_id])
    assert gone(broker, session, tmp_path) and counts(broker) == (0, 0)


def test_one_that_is_sent_settled_is_the_receivers_when_all_of_it_is_out(
    broker: RunningBroker, session: PeerSession, tmp_path: Path
) -> None:
    """A receiver that leaves in the middle has not got it: another one gets it."""
    accepted(session.attach_sender("up", "q"))
    with session_to(broker, "slow") as other:
        slow = other.connection.begin(incoming_window=2)
        reader = slow.attach_receiver("slow", "q", credit=1, snd_settle_mode=1)
        slow.connection.pump_until(lambda: reader.partial is not None and reader.partial.frames == 2)
        assert counts(broker)[0] == 1
        reader.detach()
    receiver = session.attach_receiver("down", "q", credit=1, snd_settle_mode=1)
    (found,) = receive(receiver, 1)
    assert body_of(found) == body() and not Message(found.payload).header.first_acquirer
    assert gone(broker, session, tmp_path) and counts(broker) == (0, 0)


def test_a_damaged_one_between_others_harms_none_of_them(
    broker: RunningBroker, session: PeerSession, tmp_path: Path
) -> None:
    """Each sound one comes once, and in its order; in a transaction, too, which has acquired what it was
    sent.
    """
    sender = session.attach_sender("up", "q")
    for number in range(5):
        accepted(sender, properties=Properties(message_id=str(number)))
    damage(files_of(tmp_path)[2])
    receiver = session.attach_receiver("down", "q", credit=0)
    aborted = streams(receiver)
    receiver.flow(20)
    session.connection.pump_until(lambda: len(receiver.deliveries) == 4)
    settle_down(broker, session)
    wanted = [checksum(SIZE, properties=Properties(message_id=str(number))) for number in (0, 1, 3, 4)]
    found: Any = [*receiver.deliveries]
    assert [each.crc for each in found] == wanted and len(aborted) == 1
    receiver.settle([each.delivery_id for each in found])
    settle_down(broker, session)
    assert counts(broker) == (0, 0) and cached(broker) == 0


@pytest.mark.parametrize("settled", [False, True])
def test_a_transaction_acquires_each_once(
    broker: RunningBroker, session: PeerSession, tmp_path: Path, settled: bool
) -> None:
    """With credit for more than is there, and only their heads in memory."""
    controller = Controller(session)
    sender = session.attach_sender("up", "q")
    for _ in range(3):
        accepted(sender)
        send(sender, b"small", durable=True)
    receiver = session.attach_receiver("down", "q", credit=0, snd_settle_mode=1 if settled else 0)
    txn_id = controller.declare()
    receiver.flow(20, txn_id=txn_id)
    found = receive(receiver, 6)
    settle_down(broker, session)
    assert not receiver.deliveries and cached(broker) < 8 * KIB
    assert [body_of(each) for each in found] == [body(), b"small"] * 3
    if not settled:
        state = TransactionalState(txn_id=txn_id, outcome=Accepted())
        for each in found:
            receiver.settle(each, state)
    controller.discharge(txn_id)
    receiver.flow(0, txn_id=b"")
    assert gone(broker, session, tmp_path) and counts(broker) == (0, 0) and cached(broker) == 0


def test_a_transaction_that_was_sent_half_of_one_settled_cannot_commit(
    broker: RunningBroker, session: PeerSession, tmp_path: Path
) -> None:
    """It is damaged: the commit would be the acceptance of what nobody has got."""
    controller = Controller(session)
    accepted(session.attach_sender("up", "q"))
    damage(files_of(tmp_path)[0])
    receiver = session.attach_receiver("down", "q", credit=0, snd_settle_mode=1)
    txn_id = controller.declare()
    aborted = streams(receiver)
    receiver.flow(1, txn_id=txn_id)
    session.connection.pump_until(lambda: aborted)
    settle_down(broker, session)
    outcome = controller.discharge(txn_id)
    assert isinstance(outcome, Rejected), outcome
    settle_down(broker, session)
    assert counts(broker) == (0, 0)  # it is put away


@pytest.mark.parametrize("fault", ["damaged", "unread"])
def test_what_follows_a_lost_one_is_acquired_in_the_transaction(
    broker: RunningBroker, session: PeerSession, tmp_path: Path, fault: str
) -> None:
    """The flow that named it holds until another one (4.4.3): a rollback takes back what came behind."""
    controller = Controller(session)
    sender = session.attach_sender("up", "q")
    accepted(sender)
    if fault == "damaged":
        damage(files_of(tmp_path)[0])
    receiver = session.attach_receiver("down", "q")
    txn_id = controller.declare()
    aborted = streams(receiver)

    def no_more(file: BodyFile, octets: int, at: int) -> bytes:
        raise OSError(errno.EMFILE, "too many")

    with ExitStack() as patched:
        if fault == "unread":
            patched.enter_context(patch.object(BodyFile, "read", no_more))
        receiver.flow(3, txn_id=txn_id)
        session.connection.pump_until(lambda: aborted)
        settle_down(broker, session)
    states = []
    real: Any = receiver.on_transfer

    def on_transfer(transfer: Transfer, payload: bytes) -> None:
        states.append(transfer.state)
        real(transfer, payload)

    receiver.on_transfer = on_transfer  # type: ignore[method-assign]
    send(sender, b"behind", b"and behind", durable=True)
    session.connection.pump_until(lambda: len(receiver.deliveries) == 2)
    assert states == [TransactionalState(txn_id=txn_id)] * 2
    controller.roll_back(txn_id)
    other = session.attach_receiver("other", "q", credit=5)
    found = receive(other, 2 if fault == "damaged" else 3)
    assert [body_of(each) for each in found[-2:]] == [b"behind", b"and behind"]


@pytest.mark.parametrize("kind", ["unsettled", "settled", "decided"])
def test_a_damaged_one_that_is_acquired_is_put_away_with_its_transaction(
    broker: RunningBroker, session: PeerSession, tmp_path: Path, kind: str
) -> None:
    """The next transaction gets what is behind it. Without what the receiver has accepted before all was
    there, or would have with the commit, that is refused.
    """
    sender = session.attach_sender("up", "q")
    accepted(sender)
    send(sender, b"behind", durable=True)
    damage(files_of(tmp_path)[0])
    slow = session.connection.begin(incoming_window=2)
    controller = Controller(session)
    receiver = slow.attach_receiver("down", "q", snd_settle_mode=1 if kind == "settled" else 0)
    aborted = streams(receiver)
    txn_id = controller.declare()
    receiver.flow(1, txn_id=txn_id)
    session.connection.pump_until(lambda: receiver.partial is not None)
    if kind == "decided":
        assert isinstance(receiver.partial, Taken)
        state = TransactionalState(txn_id=txn_id, outcome=Accepted())
        receiver.settle([receiver.partial.delivery_id], state, settled=False)
    slow.incoming_window = 1_000
    slow.flow()
    session.connection.pump_until(lambda: aborted)
    settle_down(broker, session)
    outcome = controller.discharge(txn_id)
    assert isinstance(outcome, Accepted if kind == "unsettled" else Rejected), outcome
    txn_id = controller.declare()
    receiver.flow(1, txn_id=txn_id)
    session.connection.pump_until(lambda: receiver.deliveries)
    assert len(aborted) == 1 and counts(broker)[0] == 1
    controller.roll_back(txn_id)


def test_what_a_broken_connection_had_acquired_goes_with_who_takes_it(
    broker: RunningBroker, session: PeerSession, tmp_path: Path
) -> None:
    """Half of it was sent, in a transaction; nothing of that keeps its file, without the collector of
    garbage.
    """
    accepted(session.attach_sender("up", "q"))
    gc.disable()
    try:
        with session_to(broker, "slow") as other:
            slow = other.connection.begin(incoming_window=2)
            txn_id = Controller(other).declare()
            reader = slow.attach_receiver("slow", "q")
            reader.flow(2, txn_id=txn_id)
            slow.connection.pump_until(lambda: reader.partial is not None)
            other.connection.abort()
        receiver = session.attach_receiver("down", "q", credit=1)
        (found,) = receive(receiver, 1)
        receiver.settle(found)
        assert gone(broker, session, tmp_path) and counts(broker) == (0, 0)
    finally:
        gc.enable()


def test_a_browser_of_a_damaged_one_goes_on(
    broker: RunningBroker, session: PeerSession, tmp_path: Path
) -> None:
    """It is aborted there; who consumes it puts it away."""
    sender = session.attach_sender("up", "q")
    accepted(sender)
    send(sender, b"behind", durable=True)
    damage(files_of(tmp_path)[0])
    looks = browse(session, "looks", "q")
    aborted = streams(looks)
    looks.flow(5)
    session.connection.pump_until(lambda: looks.deliveries)
    assert len(aborted) == 1 and counts(broker)[0] == 2


def test_a_slow_reader_holds_up_nobody(broker: RunningBroker, session: PeerSession) -> None:
    """It gets what its window allows; when it leaves, another one gets all of it."""
    accepted(session.attach_sender("up", "q"))
    with session_to(broker, "slow") as other:
        slow = other.connection.begin(incoming_window=2)
        reader = slow.attach_receiver("slow", "q", credit=1)
        settle_down(broker, session)
        slow.connection.pump_until(lambda: reader.partial is not None and reader.partial.frames == 2)
        send(session.attach_sender("more", "other"), b"x", durable=True)
        assert reader.partial is not None
        reader.detach()
    receiver = session.attach_receiver("down", "q", credit=1)
    assert body_of(receive(receiver, 1)[0]) == body()


def test_dead_letters_share_the_body(broker: RunningBroker, session: PeerSession, tmp_path: Path) -> None:
    """Rejected, or tried too often: the octets stay where they are, and the letter says why."""
    accepted(session.attach_sender("up", "twice"), message_annotations={Symbol("x-opt-a"): "1"})
    receiver = session.attach_receiver("down", "twice", credit=1)
    receiver.settle(receive(receiver, 1)[0], Modified(delivery_failed=True))
    receiver.flow(1)
    receiver.settle(receive(receiver, 1)[0], Rejected(error=Error(condition="test:no")))
    settle_down(broker, session)
    assert counts(broker, "twice") == (0, 0) and counts(broker, "graves")[0] == 1
    assert counts(broker, "graves")[1] > SIZE
    assert len(files_of(tmp_path)) == 1
    graves = session.attach_receiver("graves", "graves", credit=1)
    (letter,) = receive(graves, 1)
    annotations = Message(letter.payload).message_annotations or {}
    assert annotations[Symbol("x-opt-a")] == "1"
    assert annotations[Symbol("x-opt-dead-letter-reason")] == "rejected"
    assert body_of(letter) == body()
    graves.settle(letter)
    assert gone(broker, session, tmp_path) and counts(broker, "graves") == (0, 0)


def test_a_dead_letter_that_is_damaged_is_put_away(
    broker: RunningBroker, session: PeerSession, tmp_path: Path
) -> None:
    """Damage that came before it was rejected, or after: nobody gets it, and nothing else happens."""
    accepted(session.attach_sender("up", "twice"))
    receiver = session.attach_receiver("down", "twice", credit=1)
    (found,) = receive(receiver, 1)
    damage(files_of(tmp_path)[0])
    receiver.settle(found, Rejected(error=Error(condition="test:no")))
    settle_down(broker, session)
    assert counts(broker, "graves")[0] == 1
    graves = session.attach_receiver("graves", "graves", credit=0)
    aborted = streams(graves)
    graves.flow(1)
    session.connection.pump_until(lambda: aborted)
    settle_down(broker, session)
    assert counts(broker, "graves") == (0, 0)


KINDS: dict[str, dict[str, Any]] = {
    "plain": {}, "retaining": {"retention_ms": 60_000}, "told": {"events": True},
    "ring": {"ring_messages": 9, "message_type": "normal"},
    "latest": {"last_value_key": "key", "max_messages": 100, "message_type": "normal"},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_one_damaged_letter_takes_no_others_with_it(tmp_path: Path, kind: str) -> None:
    """Whatever the queue of dead letters is, no body is read on the way there; sound ones are delivered, and
    the damaged one is put away when it is read. Also after a start.
    """
    policies = (
        QueuePolicy(pattern="q", dead_letter_address="graves"), QueuePolicy(pattern="graves", **KINDS[kind]),
    )  # fmt: skip
    config = attrs.evolve(config_of(tmp_path), queue_policies=policies)
    sizes = (KIB, SIZE, SIZE, KIB)
    with running_broker(config) as broker, session_to(broker) as session:
        sender = session.attach_sender("up", "q")
        for number, size in enumerate(sizes):
            accepted(sender, size, application_properties={"key": f"{number}"})
        receiver = session.attach_receiver("down", "q", credit=4)
        found = receive(receiver, 4)
        damage(files_of(tmp_path)[0])
        with patch.object(BodyFile, "read", side_effect=AssertionError):
            receiver.settle(found, Rejected())
            comes_to(session, lambda: counts(broker) == (0, 0))
        assert cached(broker) < 8 * KIB
        assert counts(broker, "graves")[0] == 4 and counts(broker, "graves")[1] > 2 * SIZE
        graves = session.attach_receiver("graves", "graves", credit=1)
        (first,) = receive(graves, 1)
        assert body_of(first) == body(KIB)
    with running_broker(config) as broker, session_to(broker) as session:
        graves = session.attach_receiver("graves", "graves", credit=0)
        aborted = streams(graves)
        graves.flow(4)
        session.connection.pump_until(lambda: len(graves.deliveries) == 3)
        letters: Any = [*graves.deliveries]
        assert len(aborted) == 1
        assert [each.size > SIZE for each in letters] == [False, True, False]
        graves.settle([each.delivery_id for each in letters])
        settle_down(broker, session)
        assert counts(broker, "graves") == (0, 0) and cached(broker) == 0


@pytest.mark.parametrize("damaged", [False, True])
def test_a_temporary_queue_has_it_on_the_disk_too(
    broker: RunningBroker, session: PeerSession, tmp_path: Path, damaged: bool
) -> None:
    """No body is read when one moves there; its file is there as long as the message, though no row is."""
    accepted(session.attach_sender("up", "q"))
    receiver = session.attach_receiver("down", None, source=Source(dynamic=True))

    async def move(running: Broker) -> None:
        nodes = running.nodes
        source, target = nodes.queues.find("q"), nodes.queues.find(receiver.address)
        assert source is not None and target is not None
        record = source.backlog.take(1)
        moved = Moved(nodes, source, record, [posting(nodes, target, record)], "a test")
        nodes.writer.submit(moved)
        await moved.done()
        del record, moved
        while running.writer._store.idle(0):
            pass

    with patch.object(BodyFile, "read", side_effect=AssertionError):
        broker.call(move)
    assert counts(broker) == (0, 0) and len(files_of(tmp_path)) == 1
    if damaged:
        damage(files_of(tmp_path)[0])
    aborted = streams(receiver)
    receiver.flow(1)
    session.connection.pump_until(lambda: aborted if damaged else receiver.deliveries)
    if not damaged:
        taken: Any = receiver.deliveries.popleft()
        assert taken.crc == checksum(SIZE)
        receiver.settle([taken.delivery_id])
    settle_down(broker, session)
    assert counts(broker, receiver.address) == (0, 0)
    gc.collect()
    assert gone(broker, session, tmp_path)


def test_transactions_have_it_whole(broker: RunningBroker, session: PeerSession, tmp_path: Path) -> None:
    """Posted in one it waits in memory, and so does what one acquires; an outcome in one needs nothing."""
    controller = Controller(session)
    sender = session.attach_sender("up", "q")
    txn_id = controller.declare()
    session.connection.pump_until(lambda: sender.may_send)
    sender.send(message(body(), durable=True), txn_id=txn_id)
    assert room(broker) == 0
    controller.discharge(txn_id)
    accepted(sender)
    receiver = session.attach_receiver("down", "q", credit=2)
    posted, streamed = receive(receiver, 2)
    assert {body_of(posted), body_of(streamed)} == {body()}
    txn_id = controller.declare()
    receiver.settle(posted)
    receiver.settle(streamed, TransactionalState(txn_id=txn_id, outcome=Released()))
    controller.discharge(txn_id)
    txn_id = controller.declare()
    receiver.flow(1, txn_id=txn_id)
    (acquired,) = receive(receiver, 1)
    assert body_of(acquired) == body()
    receiver.settle(acquired, TransactionalState(txn_id=txn_id, outcome=Accepted()))
    controller.discharge(txn_id)
    receiver.flow(0, txn_id=b"")
    spool = files_of(tmp_path)[-1]
    gone(broker, session, tmp_path)
    assert not spool.exists() and counts(broker) == (0, 0) and cached(broker) == 0


def test_a_filter_looks_at_its_head(broker: RunningBroker, session: PeerSession) -> None:
    """In memory, or when a page is read."""
    sender = session.attach_sender("up", "q")
    accepted(sender, application_properties={"colour": "red"})
    accepted(sender, application_properties={"colour": "blue"})
    source = Source(address="q", filter=selector("colour = 'blue'"))
    receiver = session.attach_receiver("down", "q", source=source, credit=2)
    (found,) = receive(receiver, 1)
    assert Message(found.payload).application_properties == {"colour": "blue"} and body_of(found) == body()


def test_a_link_that_may_be_resumed_has_heads_in_memory(tmp_path: Path) -> None:
    """However much is assigned to it, and unsettled; its deliveries come again, also after a start."""
    source = Source(address="q", expiry_policy="never", durable=2)
    tags: dict[bytes, Any] = {}
    for again in range(3):
        with running_broker(config_of(tmp_path)) as broker, session_to(broker) as session:
            if not again:
                sender = session.attach_sender("up", "q")
                for _ in range(4):
                    accepted(sender)
            receiver = session.attach_receiver("down", "q", source=source, credit=100, unsettled=tags or {})
            found = receive(receiver, 4)
            assert [body_of(each) for each in found] == [body()] * 4
            assert cached(broker) < 4 * KIB
            tags = {each.delivery_tag: None for each in found}
            if again == 2:
                receiver.settle(found)
                assert gone(broker, session, tmp_path) and counts(broker) == (0, 0)


def test_links_that_may_be_resumed_have_it_whole(broker: RunningBroker, session: PeerSession) -> None:
    """Both ways; what is unsettled is sent again."""
    sender = session.attach_sender(
        "up", "q", target=Target(address="q", expiry_policy="never", durable=2), unsettled={}
    )
    accepted(sender)
    assert room(broker) == 0
    accepted(session.attach_sender("plain", "q"))
    source = Source(address="q", expiry_policy="never", durable=2)
    receiver = session.attach_receiver("down", "q", source=source, credit=2)
    assert {body_of(each) for each in receive(receiver, 2)} == {body()}


@pytest.mark.parametrize("name", ["retaining", "q"])
def test_others_stay_in_memory(
    broker: RunningBroker, session: PeerSession, tmp_path: Path, name: str
) -> None:
    """Those of queues that keep what is gone, and those that are not durable: nothing of them is spooled."""
    sender = session.attach_sender("up", name)
    session.connection.pump_until(lambda: sender.may_send)
    begin(sender, SIZE, durable=name != "q")
    more(sender, body()[: 1_500 * KIB])
    settle_down(broker, session)
    assert room(broker) == 0 and files_of(tmp_path) == []
    more(sender, body()[1_500 * KIB :], last=True)
    receiver = session.attach_receiver("down", name, credit=1)
    assert body_of(receive(receiver, 1)[0]) == body()


def test_bounds_count_all_of_it(broker: RunningBroker, session: PeerSession) -> None:
    """What a receiver takes (2.7.3) is compared with the whole message, and so is what a link may be sent."""
    sender = session.attach_sender("up", "q")
    accepted(sender)
    send(sender, b"small", durable=True)
    narrow = session.attach_receiver("narrow", "q", credit=2, max_message_size=SIZE)
    assert body_of(receive(narrow, 1)[0]) == b"small"
    wide = session.attach_receiver("wide", "q", credit=1, max_message_size=SIZE + 100)
    assert body_of(receive(wide, 1)[0]) == body()


def test_room_is_kept_for_all_of_it(broker: RunningBroker, session: PeerSession) -> None:
    """What moves to a queue with a bound of octets stays below it, as far as others do, too."""
    sender = session.attach_sender("up", "q")
    for _ in range(4):
        accepted(sender)
    session.attach_sender("other", "narrow")

    def fits(running: Broker) -> tuple[int, int, int]:
        source, target = running.nodes.queues.find("q"), running.nodes.queues.find("narrow")
        assert source is not None and target is not None
        limits = target.limits
        target.limits = QueueLimits(limits.max_messages, SIZE + 1_000, limits.max_volatile_bytes)
        records = source.backlog.next_in_order(0, 10)
        assert target.reserve_one(octets_of_records(records[:1]))
        fit = fitting(target, records)
        move = posting(running.nodes, target, records)
        move.end()
        target.unreserve(1, octets_of_records(records[:1]))
        return len(fit), move.size_bytes, target.reserved_bytes

    count, size, reserved = broker.call(fits)
    assert (count, reserved) == (1, 0) and size > 4 * SIZE


def test_management_shows_it(broker: RunningBroker, session: PeerSession, tmp_path: Path) -> None:
    """Its size, its sections and the begin of its body, of which no more than that is read."""
    accepted(session.attach_sender("up", "q"), properties=THERE)

    def look(running: Broker, body_bytes: int) -> Any:
        queue = running.nodes.queues.find("q")
        assert queue is not None
        return shown_message(queue.backlog.next_in_order(0, 1)[0], "available", body_bytes, 0)

    shown = broker.call(lambda running: look(running, 100))
    assert shown["bytes"] == counts(broker)[1] and shown["truncated"]
    assert (shown["body_type"], shown["body"]) == ("data", body()[:100])
    assert shown["properties"] == {"to": "there"}
    whole = broker.call(lambda running: look(running, SIZE))
    assert whole["body"] == body() and not whole["truncated"]
    os.rename(files_of(tmp_path)[0], tmp_path / "elsewhere")
    broker.call(lambda running: running.writer._store._files.opened.close())
    lost = broker.call(lambda running: look(running, 100))
    assert lost["body"] == b"" and lost["truncated"] and lost["bytes"] == shown["bytes"]
    os.rename(tmp_path / "elsewhere", tmp_path / f"{PREFIX}1")


def test_management_shows_one_that_is_held(broker: RunningBroker, session: PeerSession) -> None:
    """From the store, where it is not read whole, either."""
    accepted(session.attach_sender("up", "q"))
    receive(session.attach_receiver("down", "q", credit=1), 1)
    with patch.object(reader, "read_bodies", side_effect=AssertionError("it is read whole")):
        shown = broker.ask("READ-MESSAGE", "queue", "q", offset=0, body_bytes=10)
    assert (shown["state"], shown["body"], shown["bytes"]) == ("held", body()[:10], counts(broker)[1])


def test_one_beyond_the_limit_is_refused_in_the_middle(tmp_path: Path) -> None:
    """max-message-size holds for what has passed, too."""
    config = config_of(tmp_path, max_message_size_bytes=SIZE)
    with running_broker(config) as broker, session_to(broker) as session:
        sender = session.attach_sender("up", "q")
        session.connection.pump_until(lambda: sender.may_send)
        begin(sender, SIZE)
        more(sender, body())
        with pytest.raises(PeerError, match="message-size-exceeded"):
            session.connection.pump_until(lambda: sender.detached is not None)
        assert gone(broker, session, tmp_path)


def test_an_expired_one_is_a_dead_letter(broker: RunningBroker, session: PeerSession, tmp_path: Path) -> None:
    """With the same body."""
    expire(broker, session, "q", SIZE)
    letters = session.attach_receiver("down", "dead-letters", credit=1)
    (letter,) = receive(letters, 1)
    assert body_of(letter) == body()
    letters.settle(letter)
    assert gone(broker, session, tmp_path) and cached(broker) == 0


@pytest.mark.parametrize("size", [KIB, SIZE])
def test_a_dead_letter_lives_longer_than_the_message_that_it_was(tmp_path: Path, size: int) -> None:
    """Its time to live was that of the message; it stays after a start, when it is read from the disk."""
    for again in range(2):
        with running_broker(config_of(tmp_path)) as broker, session_to(broker) as session:
            if not again:
                expire(broker, session, "twice", size)
                assert counts(broker, "graves")[0] == 1
                continue
            graves = session.attach_receiver("graves", "graves", credit=1)
            (letter,) = receive(graves, 1)
            assert body_of(letter) == body()[:size]
            assert Message(letter.payload).header.ttl is None
            graves.settle(letter)
            assert gone(broker, session, tmp_path)


@pytest.mark.parametrize("size", [KIB, SIZE])
def test_a_queue_goes_after_its_dead_letters(tmp_path: Path, size: int) -> None:
    """One that lives as long as it has messages: its last one expires, and the queue of dead letters has to
    be made first. Nothing is forgotten before it is kept elsewhere.
    """
    done: list[str] = []
    apply = SqliteStore.apply

    def told(store: SqliteStore, units: Any) -> Any:
        done.extend(type(verb).__name__ for unit in units for verb in unit)
        return apply(store, units)

    with running_broker(config_of(tmp_path)) as broker, session_to(broker) as session:

        def shorten(running: Broker) -> None:
            queue = running.nodes.queues.find("twice")
            assert queue is not None
            queue.lifetime = Lifetime(DeleteOnNoMessages())

        sender = session.attach_sender("short", "twice")
        broker.call(shorten)
        session.connection.pump_until(lambda: sender.may_send)
        number = sender.send(encode_message(header=Header(durable=True, ttl=500), body=body()[:size]))
        with patch.object(SqliteStore, "apply", told):
            session.connection.pump_until(lambda: number in sender.outcomes)
            sender.detach()
            comes_to(session, lambda: "DeleteNode" in done)
        posts = {"Post", "PostLarge"}
        assert done.index("DeleteNode") > max(at for at, name in enumerate(done) if name in posts)
        graves = session.attach_receiver("graves", "graves", credit=1)
        (letter,) = receive(graves, 1)
        assert body_of(letter) == body()[:size]


@pytest.mark.parametrize("size", [KIB, SIZE])
def test_a_queue_that_is_deleted_by_force_goes_after_its_dead_letters(tmp_path: Path, size: int) -> None:
    """Its message has just expired, and the queue of dead letters has to be made first."""
    done: list[str] = []
    apply = SqliteStore.apply

    def told(store: SqliteStore, units: Any) -> Any:
        done.extend(type(verb).__name__ for unit in units for verb in unit)
        return apply(store, units)

    async def expire_and_delete(running: Broker) -> None:
        queue = running.nodes.queues.find("twice")
        assert queue is not None
        expired = queue.backlog.take(1)
        assert len(expired) == 1
        running.nodes.expire(queue, expired)
        await deletion(running.nodes).run(queue, {"force": True}, Principal("admin", "PLAIN"))

    with running_broker(config_of(tmp_path)) as broker, session_to(broker) as session:
        sender = session.attach_sender("up", "twice")
        session.connection.pump_until(lambda: sender.may_send)
        assert accepted(sender, size) == Accepted()
        sender.detach()
        with patch.object(SqliteStore, "apply", told):
            broker.call(expire_and_delete)
        posts = {"Post", "PostLarge"}
        assert done.index("DeleteNode") > max(at for at, name in enumerate(done) if name in posts)
        graves = session.attach_receiver("graves", "graves", credit=1)
        assert body_of(receive(graves, 1)[0]) == body()[:size]


@pytest.mark.parametrize("kind", ["queue", "subscription"])
def test_the_end_of_a_queue_waits_for_letters_that_have_no_room(tmp_path: Path, kind: str) -> None:
    """On a full disk a message waits to be kept elsewhere: what gives room does not overtake it."""
    done: list[str] = []
    apply = SqliteStore.apply
    refusing = True

    async def end(running: Broker, queue: Queue) -> None:
        if kind == "queue":
            await deletion(running.nodes).run(queue, {"force": True}, Principal("admin", "PLAIN"))
            return
        topics = running.features.topics
        (subscription,) = topics._subscriptions.values()
        error: Error | None = await answer_to(lambda then: topics.unsubscribe(subscription, then))
        assert error is None

    async def expire_and_end(running: Broker) -> None:
        nonlocal refusing
        full = trio.Event()

        def told(store: SqliteStore, units: Any) -> Any:
            store._space.refuse_posts = lambda: refusing  # type: ignore[method-assign]
            errors = apply(store, units)
            if any(errors):
                full.set()
            else:
                done.extend(type(verb).__name__ for unit in units for verb in unit)
            return errors

        (queue,) = [each for each in running.nodes.queues.queues() if each.message_count]
        with patch.object(SqliteStore, "apply", told):
            running.nodes.expire(queue, queue.backlog.take(1))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(end, running, queue)
                await full.wait()
                await running.writer.ask(lambda store: None)
                await running.writer.ask(lambda store: None)
                refusing = False

    with running_broker(config_of(tmp_path)) as broker, session_to(broker) as session:
        graves = "graves" if kind == "queue" else "dead-letters"
        session.attach_sender("makes", graves)
        if kind == "queue":
            sender = session.attach_sender("up", "twice")
        else:
            session.attach_receiver("sub", "news", source=durable("news")).detach(closed=False)
            topic = Target(address="news", capabilities=("topic",))
            sender = session.attach_sender("up", "news", target=topic)
        send(sender, b"short", durable=True)
        sender.detach()
        settle_down(broker, session)
        broker.call(expire_and_end)
        assert "Post" in done and done.index("DeleteNode") > max(
            at for at, name in enumerate(done) if name == "Post"
        )
        (letter,) = receive(session.attach_receiver("graves", graves, credit=1), 1)
        assert body_of(letter) == b"short"


def test_a_queue_can_be_deleted_though_none_can_be_made_for_its_letters(tmp_path: Path) -> None:
    """What waits for it is refused: the next start has the message, or, by force, nobody."""

    async def expire_and_delete(running: Broker) -> None:
        queue = running.nodes.queues.find("twice")
        assert queue is not None
        running.nodes.expire(queue, queue.backlog.take(1))
        with trio.fail_after(10):
            await deletion(running.nodes).run(queue, {"force": True}, Principal("admin", "PLAIN"))

    refused = Refused(Error(condition="amqp:not-allowed", description="no"))
    with running_broker(config_of(tmp_path)) as broker, session_to(broker) as session:
        sender = session.attach_sender("up", "twice")
        send(sender, b"short", durable=True)
        sender.detach()
        with patch.object(Making, "prepare", side_effect=refused):
            broker.call(expire_and_delete)
        assert broker.call(lambda running: running.nodes.queues.find("twice")) is None


def test_checksums_of_the_support_agree() -> None:
    """What is sent is what is expected."""
    from zlib import crc32

    assert checksum(SIZE) == crc32(behind_header(head_of(SIZE)) + body())

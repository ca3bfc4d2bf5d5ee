"""The blocking client against a real broker over real sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from amqp_broker.client import blocking_pump
from amqp_broker.client.blocking import BlockingConnection, connect
from amqp_broker.client.blocking_bytes import PlainBytes
from amqp_broker.client.blocking_pump import Pump
from amqp_broker.client.core import ClientCore
from amqp_broker.client.errors import (
    ConnectFailed,
    ConnectionGone,
    LinkGone,
    LinkRefused,
    LoginRefused,
    MessageRefused,
    OutcomeUnknown,
    SessionGone,
    WaitTimeout,
    WrongUse,
)
from amqp_broker.client.messages import message
from amqp_broker.client.pending import Pending
from amqp_broker.client.settings import ClientSettings, Endpoint
from amqp_broker.embedding import RunningBroker, running_broker
from amqp_broker.frames import AMQP_HEADER, EMPTY_FRAME, Open, encode_frame
from amqp_broker.testing import ScriptedFaults
from amqp_broker.testing.blocking_peer import PATIENCE_S
from tests.amqp_broker.test_listener import Keys
from tests.amqp_broker.test_listener import keys as keys
from tests.amqp_broker.test_logins import config
from tests.conformance.scripted_server import scripted_server

WAIT_S = PATIENCE_S


def opening(**fields: Any) -> bytes:
    """What a server says to a client without a login; then it is silent."""
    return AMQP_HEADER + encode_frame(0, Open(container_id="scripted", **fields))


@pytest.fixture
def faults() -> ScriptedFaults:
    """What goes wrong in the broker of `faulty`."""
    return ScriptedFaults()


@pytest.fixture
def faulty(faults: ScriptedFaults) -> Iterator[BlockingConnection]:
    """A connection to a broker in which things go wrong."""
    with running_broker(faults=faults) as broker, connect(broker.url, timeout_s=WAIT_S) as connection:
        yield connection


# --- messages


def test_send_receive_and_every_outcome(connection: BlockingConnection) -> None:
    """Accepted is gone, released and modified come again, rejected does not."""
    sender = connection.open_sender("orders")
    for number in range(4):
        sender.send(message(f"order {number}", subject="new"))
    receiver = connection.open_receiver("orders", credit=1)
    receiver.accept(receiver.receive(WAIT_S))
    receiver.reject(receiver.receive(WAIT_S), "shop:unknown", "no such shoes")
    released = receiver.receive(WAIT_S)
    receiver.release(released)
    again = receiver.receive(WAIT_S)
    assert (again.body, again.header.delivery_count or 0) == ("order 2", 0)
    receiver.modify(again)
    tried = receiver.receive(WAIT_S)
    assert (tried.body, tried.header.delivery_count) == ("order 2", 1) and tried.properties.subject == "new"
    receiver.accept(tried)
    receiver.accept(receiver.receive(WAIT_S))
    assert receiver.receive_now() is None


def test_many_messages_in_a_window_arrive_once_and_in_order(connection: BlockingConnection) -> None:
    """Pipelined: far faster than one outcome at a time, and as certain. A consumer is a for loop."""
    sent = connection.open_sender("orders").send_many((number for number in range(5_000)), window=700)
    assert sent == 5_000
    bodies = []
    receiver = connection.open_receiver("orders", credit=500)
    for received in receiver:
        bodies.append(received.body)
        receiver.accept(received)
        if len(bodies) == 5_000:
            break
    assert bodies == list(range(5_000))


def test_all_kinds_of_messages(connection: BlockingConnection) -> None:
    """A dynamic node has a name for reply-to; settled messages need no answer; eight MiB go through frames of
    64 KiB and a socket that takes less at a time; to look whether something is there does not wait.
    """
    replies = connection.open_receiver(None)
    assert replies.address and replies.receive_now() is None
    sender = connection.open_sender(replies.address)
    large = bytes(range(256)) * (8 * 4_096)
    sender.send("one", settled=True)
    sender.send(large)
    for body in ("one", large):
        received = replies.receive(WAIT_S)
        replies.accept(received)
        assert received.body == body


def test_many_threads_share_a_connection(connection: BlockingConnection) -> None:
    """Every message is accepted once, whoever sent it."""
    sender = connection.open_sender("orders")

    def work(name: int) -> None:
        for number in range(50):
            sender.send(f"{name}/{number}")

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    receiver = connection.open_receiver("orders", credit=100)
    bodies = []
    for _ in range(400):
        received = receiver.receive(WAIT_S)
        bodies.append(received.body)
        receiver.accept(received)
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(bodies) == sorted(f"{name}/{number}" for name in range(8) for number in range(50))


# --- what goes wrong


def test_a_refusal_says_why(connection: BlockingConnection) -> None:
    """The connection goes on."""
    with pytest.raises(LinkRefused, match="expected the attach of a sender to '\\$nope'") as caught:
        connection.open_sender("$nope")
    assert caught.value.condition == "amqp:not-found"
    connection.open_sender("orders").send("one")


def test_a_full_disk_is_a_refused_message(faults: ScriptedFaults, faulty: BlockingConnection) -> None:
    """Rejected with the broker's condition; of many messages the first failure is told after all outcomes."""
    sender = faulty.open_sender("orders")
    faults.refuse_commit()
    with pytest.raises(MessageRefused, match="expected accepted") as caught:
        sender.send("one")
    assert caught.value.condition == "amqp:resource-limit-exceeded"
    faults.refuse_commit(count=3)  # of the first reads together, of the first one, of a message alone
    with pytest.raises(MessageRefused):
        sender.send_many(range(200))
    sender.send("three")


def test_no_message_in_time(connection: BlockingConnection) -> None:
    """The error says what was expected and how long; the link goes on."""
    receiver = connection.open_receiver("orders")
    with pytest.raises(WaitTimeout, match="expected a message from 'orders' within 0.01 s, but none came"):
        receiver.receive(0.01)
    connection.open_sender("orders").send("one")
    assert receiver.receive(WAIT_S).body == "one"


def test_a_message_without_credit_is_not_sent_later(
    faults: ScriptedFaults, faulty: BlockingConnection
) -> None:
    """Whoever gave up can send again, without making two of it."""
    faults.grant_no_credit()
    sender = faulty.open_sender("orders")
    with pytest.raises(WaitTimeout, match="within 0.01 s, but nothing came; it was not sent"):
        sender.send("one", timeout_s=0.01)
    assert sender.core.waiting == 0


def test_many_messages_that_stand_still_are_given_up_together(
    faults: ScriptedFaults, faulty: BlockingConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout is not for each of them in turn: the first one is waited for, the others are looked at."""
    waits: list[float | None] = []
    wait = Pump.wait

    def noted(pump: Pump, pending: Pending[Any], timeout_s: float | None) -> Any:
        waits.append(timeout_s)
        return wait(pump, pending, 0.01)

    faults.grant_no_credit()
    sender = faulty.open_sender("orders")
    monkeypatch.setattr(Pump, "wait", noted)
    with pytest.raises(WaitTimeout, match="it was not sent"):
        sender.send_many(range(200))
    monkeypatch.undo()
    assert waits == [WAIT_S, *[0.0] * 199] and sender.core.waiting == 0


def test_an_outcome_that_is_late_is_unknown(faults: ScriptedFaults, faulty: BlockingConnection) -> None:
    """The error says that the message may be stored."""
    sender = faulty.open_sender("orders")
    with faults.held_commits():
        with pytest.raises(WaitTimeout, match="it was sent, and may be stored, or not"):
            sender.send("one", timeout_s=0.01)
    assert faulty.open_receiver("orders").receive(WAIT_S).body == "one"


def test_a_connection_that_breaks_leaves_the_outcome_unknown() -> None:
    """After the commit, before the outcome: only the caller can decide what that means."""
    faults = ScriptedFaults()
    with running_broker(faults=faults) as broker:
        with connect(broker.url, timeout_s=WAIT_S) as connection:
            sender = connection.open_sender("orders")
            receiver = connection.open_receiver("other")
            faults.reset_after_commit()
            with pytest.raises(OutcomeUnknown, match="ended: the .*; it may have been stored, or not"):
                sender.send("one")
            with pytest.raises(ConnectionGone):
                receiver.receive(WAIT_S)
            assert connection.gone is not None
        with connect(broker.url) as connection:
            assert connection.open_receiver("orders").receive(WAIT_S).body == "one"


def test_a_broker_that_stops_says_so() -> None:
    """Its condition reaches whoever waits, in whatever thread."""
    with running_broker() as broker, connect(broker.url, timeout_s=WAIT_S) as connection:
        receiver = connection.open_receiver("orders")
        broker.stop()
        with pytest.raises(ConnectionGone, match="amqp:connection:forced: the broker is stopping") as caught:
            receiver.receive(WAIT_S)
        assert caught.value.condition == "amqp:connection:forced"


def test_sessions_end_apart(connection: BlockingConnection) -> None:
    """One that was ended takes nothing; the connection makes itself another for its own links."""
    session = connection.open_session()
    sender = session.open_sender("orders")
    connection.open_sender("orders").send("one")
    session.end()
    with pytest.raises(SessionGone, match="we ended it"):
        sender.send("two")
    usual = connection.open_sender("orders")
    usual.core.link.session.context.end()
    connection.open_sender("orders").send("three")


def test_closed_links_take_nothing(connection: BlockingConnection) -> None:
    """Messages without an outcome are the node's again."""
    sender, receiver = connection.open_sender("orders"), connection.open_receiver("orders")
    sender.send("one")
    received = receiver.receive(WAIT_S)
    receiver.close()
    sender.close()
    with pytest.raises(LinkGone, match="we detached it"):
        receiver.accept(received)
    with pytest.raises(LinkGone):
        sender.send("two")
    other = connection.open_receiver("orders")
    other.set_credit(3)
    assert other.receive(WAIT_S).body == "one"


def test_nobody_listens() -> None:
    """The error names the endpoint and the system's reason."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectFailed, match=f"expected a listener at amqp://127.0.0.1:{port}, but: "):
        connect(f"amqp://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("octets", "words"), [(1_000, "no open within 0.05 s"), (8, "expected the peer's open, but")]
)
def test_a_server_that_says_nothing_or_hangs_up(octets: int, words: str) -> None:
    """Within open_timeout_s, or with the reason; the thread ends with the connection."""
    with scripted_server([octets]) as port:
        with pytest.raises(ConnectionGone, match=words):
            connect(f"amqp://127.0.0.1:{port}", open_timeout_s=0.05 if octets > 8 else 10)


def test_a_busy_program_keeps_its_connection() -> None:
    """Nobody calls the client: its thread writes the heartbeats that the peer wants (2.4.5)."""
    ours = threading.Event()
    beats: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            transport, _ = listener.accept()
            with transport:
                transport.settimeout(WAIT_S)
                transport.sendall(opening(idle_time_out=1_000))
                data = b""
                while not data.endswith(EMPTY_FRAME + EMPTY_FRAME):
                    got = transport.recv(65_536)
                    if not got:
                        return
                    data += got
                beats.append(data)
                ours.set()

        thread = threading.Thread(target=serve)
        thread.start()
        with connect(f"amqp://127.0.0.1:{listener.getsockname()[1]}", sasl=False, close_timeout_s=0.1):
            assert ours.wait(WAIT_S)
        thread.join(WAIT_S)
    assert len(beats) == 1


def test_close_is_harmless_twice_and_ends_the_thread(broker: RunningBroker) -> None:
    """Nothing of a closed connection is left."""
    before = threading.active_count()
    connection = connect(broker.url)
    assert threading.active_count() == before + 1 and connection.remote_open.container_id
    connection.close()
    connection.close()
    assert threading.active_count() == before and connection.gone == "we closed it"
    with pytest.raises(ConnectionGone, match="we closed it"):
        connection.open_sender("orders")


def test_whoever_is_interrupted_gives_up(connection: BlockingConnection) -> None:
    """Ctrl-C while waiting: what can be undone is undone."""

    class Interrupted:
        """Stands for an Event at which the user's patience ends."""

        def wait(self, timeout_s: float | None) -> bool:
            raise KeyboardInterrupt

        def set(self) -> None:
            """Nobody waits any longer."""

    pump = connection._pump
    core: ClientCore = pump.core
    given_up: list[str] = []

    def give_up() -> str:
        given_up.append("yes")
        return ""

    pending = core.pending("what never comes", give_up)
    pending.waiter = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        pump.wait(pending, None)
    assert given_up == ["yes"]


def test_a_peer_that_does_not_read_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last bytes have a bound, too: closing does not hang."""
    monkeypatch.setattr(blocking_pump, "CLOSE_GRACE_S", 0.05)
    endpoint = Endpoint("127.0.0.1", 5672, tls=False)
    core = ClientCore(ClientSettings(container_id="c"), endpoint, time.monotonic())
    flood = [[bytes(16_777_216)], []]
    monkeypatch.setattr(core, "data_to_send", lambda: flood.pop(0) if flood else [])
    ours, theirs = socket.socketpair()
    with theirs:
        pump = Pump(ours, PlainBytes(), core)
        pump.wait(pump.call(core.close), WAIT_S)
        pump.join(WAIT_S)
        assert not pump._thread.is_alive() and ours.fileno() == -1


def test_a_fault_of_ours_reaches_whoever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread dies loudly, and nobody waits for ever."""
    loud: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", loud.append)
    endpoint = Endpoint("127.0.0.1", 5672, tls=False)
    core = ClientCore(ClientSettings(container_id="c"), endpoint, time.monotonic())
    monkeypatch.setattr(core, "receive_data", lambda data, now: 1 / 0)
    opening = core.open()
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(b"something")
        pump = Pump(ours, PlainBytes(), core)
        with pytest.raises(ConnectionGone, match="a fault of the client: ZeroDivisionError"):
            pump.wait(opening, WAIT_S)
        pump.join(WAIT_S)
    assert loud and loud[0].exc_type is ZeroDivisionError


# --- logins and TLS


def test_logging_in() -> None:
    """With the strongest that both can; the rights are the user's."""
    with running_broker(config()) as broker:
        url = broker.url.replace("//", "//ada:word@")
        with connect(url) as connection:
            connection.open_sender("orders.new").send("one")
            with pytest.raises(LinkRefused, match="amqp:unauthorized-access"):
                connection.open_sender("other")
        with pytest.raises(LoginRefused, match="refused SCRAM-SHA-512 of user 'ada': code 1, wrong user"):
            connect(url.replace("word", "other"))
        with pytest.raises(LoginRefused, match="expected one of ANONYMOUS for nobody"):
            connect(broker.url)


def test_tls(keys: Keys, broker: RunningBroker) -> None:
    """The same client inside TLS; a certificate that nobody vouches for is no connection, and a server
    without TLS is told apart.
    """
    listener = keys.listener(anonymous=True)
    with running_broker(config(listeners=(listener,), users=(), access_rules=())) as secure:
        with connect(secure.url, ssl_context=keys.client(), timeout_s=WAIT_S) as connection:
            connection.open_sender("orders").send(bytes(1_000_000))
            assert len(connection.open_receiver("orders").receive(WAIT_S).body) == 1_000_000
        with pytest.raises(ConnectFailed, match="expected TLS with amqps://.*(?i:certificate)"):
            connect(secure.url)
    with pytest.raises(ConnectFailed, match="expected TLS with"):
        connect(broker.url.replace("amqp://", "amqps://"), ssl_context=keys.client())
    with pytest.raises(WrongUse, match="only amqps has TLS"):
        connect(broker.url, ssl_context=keys.client())

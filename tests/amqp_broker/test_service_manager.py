"""What systemd is told, and the sockets that it hands over: real sockets, and a real process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from amqp_broker.configuration import ListenerConfig
from amqp_broker.frames import AMQP_HEADER
from amqp_broker.given_sockets import GivenSockets, given_sockets
from amqp_broker.listener import ListenError, open_listeners
from amqp_broker.service_manager import STATUS_CHARACTERS, ServiceManager, service_manager
from amqp_broker.testing.blocking_peer import PATIENCE_S, BlockingPeer

BROKER = [sys.executable, "-W", "error", "-m", "amqp_broker"]


class Notified:
    """The socket of a service manager, and what came."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(PATIENCE_S)
        self.seen: list[list[str]] = []

    def next(self) -> list[str]:
        """The lines of the next message."""
        self.seen.append(self.socket.recv(4_096).decode().split("\n"))
        return self.seen[-1]

    def until(self, assignment: str) -> list[str]:
        """The lines of the first message that begins so."""
        while not self.next()[0].startswith(assignment):
            pass
        return self.seen[-1]

    def waiting(self) -> int:
        """How many messages are there, which are taken."""
        self.socket.setblocking(False)
        count = 0
        try:
            while self.socket.recv(4_096):
                count += 1
        except BlockingIOError:
            return count
        finally:
            self.socket.settimeout(PATIENCE_S)
        return count


@pytest.fixture(name="notified")
def _notified(tmp_path: Path) -> Iterator[Notified]:
    """One of this test."""
    found = Notified(tmp_path / "notify")
    yield found
    found.socket.close()


# A real process


@contextmanager
def ending(broker: subprocess.Popen[str]) -> Iterator[None]:
    """It is gone afterwards."""
    try:
        yield
    finally:
        if broker.poll() is None:
            broker.kill()
        broker.communicate()


@contextmanager
def process(*arguments: str, **options: object) -> Iterator[subprocess.Popen[str]]:
    """A broker that is gone afterwards."""
    broker = subprocess.Popen(  # type: ignore[call-overload]
        [*BROKER, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )
    with ending(broker):
        yield broker


def port_of(broker: subprocess.Popen[str]) -> int:
    """Where it listens."""
    assert broker.stdout is not None
    line = broker.stdout.readline()
    assert line.startswith("listening on amqp://"), (line, broker.poll())
    return int(line.rpartition(":")[2])


def test_a_life_as_systemd_hears_of_it(notified: Notified, tmp_path: Path) -> None:
    """Ready when it listens; each reload begins and ends, a refused one says why; the watchdog; the stop."""
    file = tmp_path / "broker.toml"
    file.write_text('memory = true\n[[listener]]\nurl = "amqp://127.0.0.1:0"\n')
    told = {"NOTIFY_SOCKET": notified.path, "WATCHDOG_USEC": "100000"}
    with process("serve", "--config", str(file), env={**os.environ, **told}) as broker:
        port = port_of(broker)
        assert notified.next() == ["READY=1", f"STATUS=listening on amqp://127.0.0.1:{port}"]
        BlockingPeer.connect("127.0.0.1", port).close()
        assert notified.next() == ["WATCHDOG=1"]
        before = time.monotonic_ns() // 1_000
        broker.send_signal(signal.SIGHUP)
        assert notified.until("RELOADING=1")[1].startswith("MONOTONIC_USEC=")
        assert before <= int(notified.seen[-1][1].partition("=")[2]) <= time.monotonic_ns() // 1_000
        assert notified.until("READY=1")[1] == f"STATUS=listening on amqp://127.0.0.1:{port}"
        file.write_text("memory = 1")
        broker.send_signal(signal.SIGHUP)
        notified.until("RELOADING=1")
        reason = "the last reload was refused: memory = 1: must be true or false"
        assert notified.until("READY=1")[1].endswith(reason)
        notified.until("WATCHDOG=1")
        broker.send_signal(signal.SIGTERM)
        assert notified.until("STOPPING=1") == ["STOPPING=1", "STATUS=closing 0 connections"]
        _, errors = broker.communicate(timeout=PATIENCE_S)
        assert (broker.returncode, "Traceback" in errors) == (0, False)


def test_sockets_that_systemd_opened_are_taken() -> None:
    """Who dialled before the broker was there is served; a socket of no listener is refused, with 2."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        port = one.getsockname()[1]
        early = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        descriptors = [one.fileno(), other.fileno()]
        url = f"amqp://127.0.0.1:{port}"
        with process_with(descriptors[:1], "serve", "--memory", "--listen", url) as broker:
            assert port_of(broker) == port
            with early:
                early.sendall(AMQP_HEADER)
                assert early.recv(len(AMQP_HEADER)) == AMQP_HEADER
            broker.send_signal(signal.SIGTERM)
            assert broker.wait(PATIENCE_S) == 0
        with process_with(descriptors, "serve", "--memory", "--listen", url) as broker:
            _, errors = broker.communicate(timeout=PATIENCE_S)
        assert broker.returncode == 2
        assert f"none is at 127.0.0.1:{other.getsockname()[1]}" in errors
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)


HAND_OVER = """
import fcntl, os, sys
high = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 100) for each in sys.argv[1].split(",")]
for at, each in enumerate(high):
    os.dup2(each, 3 + at)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(high))}
os.execv(sys.argv[2], sys.argv[2:])
"""


@contextmanager
def process_with(descriptors: list[int], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A broker with these sockets from descriptor 3 on, as systemd starts it."""
    command = [sys.executable, "-c", HAND_OVER, ",".join(map(str, descriptors)), *BROKER, *arguments]
    broker = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=descriptors
    )
    with ending(broker):
        yield broker


# Without one


def test_a_loop_that_hangs_tells_nothing(notified: Notified) -> None:
    """The watchdog is fed by the loop itself, and by no thread beside it."""

    async def main() -> None:
        manager = ServiceManager(notified.path, 0.02)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.keep_watched, lambda: 0.0)
            while not notified.waiting():
                await trio.lowlevel.checkpoint()
            notified.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):  # ten times as long as it has
                notified.socket.recv(4_096)
            while not notified.waiting():
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_commit_that_hangs_is_no_life(notified: Notified) -> None:
    """The loop goes round, and nothing is stored: nothing is told, until the commit returns."""
    stuck = [2.0, 2.0, 2.0, 0.5]

    async def main() -> None:
        with trio.move_on_after(3.6):  # a look each half second
            await ServiceManager(notified.path, 1.0).keep_watched(lambda: stuck.pop(0) if stuck else 0.0)

    trio.run(main, clock=MockClock(autojump_threshold=0.01))
    assert (stuck, notified.waiting()) == ([], 8 - 3)


def test_an_abstract_name_is_one() -> None:
    """As systemd in a container has it."""
    name = f"\0amqp-broker-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
        there.bind(name)
        trio.run(ServiceManager("@" + name[1:]).ready, "listening\non " + "x" * STATUS_CHARACTERS)
        told = there.recv(4_096).decode()
    assert told.startswith("READY=1\nSTATUS=listening on xxx") and told.endswith("x...")
    assert len(told) == len("READY=1\nSTATUS=") + STATUS_CHARACTERS


def test_one_that_is_gone_or_hangs_stops_nothing(
    tmp_path: Path, notified: Notified, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged; after TELL_S at most."""
    trio.run(ServiceManager(str(tmp_path / "nobody")).ready, "x")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler:
        filler.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                filler.sendto(b"x", notified.path)
    trio.run(ServiceManager(notified.path).ready, "x", clock=MockClock(autojump_threshold=0.01))
    assert [record.message.split("reason=")[1] for record in caplog.records] == [
        "'[Errno 2] No such file or directory'", "'it hangs'"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "watchdog_s"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "2000000"}, 2.0),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())}, 2.0),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "often"}, 0.0),
    ],
)
def test_the_environment_is_read_once(environment: dict[str, str], watchdog_s: float) -> None:
    """A process that the broker starts has none of it."""
    told = {"NOTIFY_SOCKET": "/run/notify", "OTHER": "x", **environment}
    assert service_manager(told).watchdog_s == watchdog_s
    assert told == {"OTHER": "x"}


def test_nobody_is_told_where_nobody_asked() -> None:
    """And nothing is wrong then; nor with what is not known."""
    trio.run(service_manager({}).ready, "x")
    trio.run(service_manager({"NOTIFY_SOCKET": "vsock:2:1"}).ready, "x")


@pytest.mark.parametrize("pid", ["", "1"])
def test_sockets_for_somebody_else_are_left_alone(pid: str) -> None:
    """As in a shell that a service runs."""
    told = {"LISTEN_PID": pid, "LISTEN_FDS": "5", "LISTEN_FDNAMES": "a"}
    given_sockets(told).check_all_taken()
    assert told == {}


@pytest.mark.parametrize("count", ["", "many", "-1", "1025"])
def test_a_number_that_is_none_is_refused(count: str) -> None:
    """With what was expected."""
    with pytest.raises(ListenError, match="LISTEN_FDS: expected a number up to 1024"):
        given_sockets({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": count})


def test_what_is_of_no_listener_is_refused_and_nothing_stays_open(tmp_path: Path) -> None:
    """At another address, or no TCP; whatever was taken before."""
    one, other = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    url = f"amqp://127.0.0.1:{one.getsockname()[1]}"
    named = f"none is at 127.0.0.1:{other.getsockname()[1]}, '.*unix', which is not TCP"
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(str(tmp_path / "unix"))

    async def main() -> None:
        given = GivenSockets([one, other, unix])
        with pytest.raises(ListenError, match=named):
            await open_listeners([ListenerConfig(url=url)], (), given)

    trio.run(main)
    assert {one.fileno(), other.fileno(), unix.fileno()} == {-1}

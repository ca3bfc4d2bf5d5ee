"""What another broker is to the comparison: a declared value, and how it is started and ended."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Final

import attrs

from amqp_broker.bench.settings import BenchSettings
from amqp_broker.frames import AmqpError
from amqp_broker.testing.blocking_peer import BlockingPeer, ConnectionLost
from amqp_broker.testing.broker_process import stop
from amqp_broker.testing.peer import PeerError

HOST: Final = "127.0.0.1"
ANSWER_S: Final = 10.0
START_S: Final = 120.0  # a first start on a busy machine
LOG_TAIL: Final = 4_000


class NotThereError(Exception):
    """A peer that this machine does not have; the text says what is missing."""


@attrs.frozen
class Program:
    """One process to start: its command, and what its environment has beside ours."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Peer:
    """Another broker, as the comparison needs it: it makes every queue that a run names."""

    name: str
    version: str
    title: str
    """Its name and its store, for a table."""
    accepted: str
    """What the outcome accepted of a durable message promises there, as seen with strace."""
    prepare: Callable[[Path, int], tuple[Program, ...]]
    """Writes its configuration below the folder, to listen on the port of loopback; its programs, the broker
    last. Raises NotThereError."""
    prefix: str = ""
    """What stands before a queue's name in an address."""
    transactions: bool = True
    """Whether it has a coordinator (part 4)."""
    user: str | None = None
    password: str = ""


@attrs.frozen
class RunningPeer:
    """A peer that listens."""

    peer: Peer
    host: str
    port: int
    pid: int

    @property
    def base(self) -> BenchSettings:
        """Where a run sends to, and as whom."""
        return BenchSettings(
            host=self.host, port=self.port, user=self.peer.user, password=self.peer.password
        )


@contextmanager
def running_peer(peer: Peer) -> Iterator[RunningPeer]:
    """The peer on a free port of loopback with its store in a new folder; both end with the block.

    Raises NotThereError where it cannot be had, RuntimeError with the end of its log when it does not listen.
    """
    with (
        tempfile.TemporaryDirectory(prefix=f"{peer.name}-", ignore_cleanup_errors=True) as name,
        ExitStack() as stack,
    ):
        folder, port = Path(name), free_port()
        programs = peer.prepare(folder, port)
        log = stack.enter_context((folder / "output.log").open("w+"))
        processes = [begin(program, folder, log, stack) for program in programs]
        wait_until_it_listens(peer, processes[-1], port, log)
        yield RunningPeer(peer, HOST, port, processes[-1].pid)


def begin(program: Program, folder: Path, log: IO[str], stack: ExitStack) -> subprocess.Popen[str]:
    """Start one; the stack ends it."""
    process = subprocess.Popen(
        program.command,
        cwd=folder,
        env=os.environ | dict(program.environment),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        text=True,
    )
    stack.callback(stop, process)
    return process


def free_port() -> int:
    """A port of loopback that nobody has now: not every peer can say which one it was given."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port


def wait_until_it_listens(peer: Peer, process: subprocess.Popen[str], port: int, log: IO[str]) -> None:
    """Until a session can be begun with it. Raises RuntimeError with its log."""
    end = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < end:
        if answers(peer, port):
            return
        time.sleep(0.1)
    log.flush()
    log.seek(0)
    why = "does not listen" if process.poll() is None else f"ended with {process.returncode}"
    raise RuntimeError(f"what should listen on port {port} {why}:\n{log.read()[-LOG_TAIL:]}")


def answers(peer: Peer, port: int) -> bool:
    """Whether a session can be begun there: some listen before their store is open (2.5.1)."""
    user, password = peer.user, peer.password
    login = ("ANONYMOUS", b"load") if user is None else ("PLAIN", f"\0{user}\0{password}".encode())
    try:
        with BlockingPeer.connect(HOST, port, login=login, timeout=ANSWER_S) as connection:
            connection.begin()
            return True
    except (ConnectionLost, OSError, PeerError, AssertionError, AmqpError):
        return False

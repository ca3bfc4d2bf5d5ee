"""A broker that misbehaves, as a process: `python -m tests.conformance.mortal_broker PORT FAULT WORD`.

It is this project's broker behind a door that looks at what clients write. When WORD comes by, the fault
begins: "dies" ends the process, "hangs" answers nobody any more, "spins" keeps a processor busy for ever and
goes on serving, "shuts" drops whoever comes. "slow" keeps every octet for `SLOW_S`, from the beginning.

It cannot outlive its test: it ends when its standard input does, its test kills its whole group, and an alarm
of the system's ends it after `LIFE_S` whatever it is busy with.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from amqp_broker.testing import running_broker

LIFE_S: Final = 120
SLOW_S: Final = 0.02
PIECE: Final = 65_536


class Door:
    """What stands before the broker."""

    def __init__(self, inner: tuple[str, int], fault: str, word: bytes) -> None:
        self.inner, self.fault, self.word = inner, fault, word
        self.hangs = threading.Event()
        self.shut = threading.Event()
        self.first, self.begun = threading.Lock(), False

    def serve(self, listener: socket.socket) -> None:
        """For ever."""
        while True:
            client, _ = listener.accept()
            if self.shut.is_set():
                client.close()
                continue
            threading.Thread(target=self.carry, args=(client,), daemon=True).start()

    def carry(self, client: socket.socket) -> None:
        """One connection, both ways."""
        server = socket.create_connection(self.inner)
        threading.Thread(target=self.pump, args=(server, client, b""), daemon=True).start()
        self.pump(client, server, self.word)

    def pump(self, source: socket.socket, sink: socket.socket, word: bytes) -> None:
        """One way."""
        seen = b""
        with suppress(OSError):
            while data := source.recv(PIECE):
                seen = seen[-len(word) :] + data
                if word and word in seen:
                    self.begin_fault()
                if self.hangs.is_set():
                    threading.Event().wait()
                if self.fault == "slow":
                    time.sleep(SLOW_S)
                sink.sendall(data)
        for one in (sink, source):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def begin_fault(self) -> None:
        """What the word does, the first time that it comes by: several threads that spin keep each other from
        it, in Python.
        """
        with self.first:
            if self.begun:
                return
            self.begun = True
        if self.fault == "dies":
            os._exit(1)
        if self.fault == "hangs":
            self.hangs.set()
        if self.fault == "shuts":
            self.shut.set()
        if self.fault == "spins":
            threading.Thread(target=spin, daemon=True).start()


def spin() -> None:
    """Keep a processor busy."""
    while True:
        pass


def end_with_input() -> None:
    """The test that began us is gone when nobody can write to us any more."""
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    """Say "listening", and serve."""
    port, fault, word = int(sys.argv[1]), sys.argv[2], sys.argv[3].encode()
    signal.alarm(LIFE_S)
    if not sys.stdin.isatty() and os.environ.get("MORTAL_GUARD"):
        threading.Thread(target=end_with_input, daemon=True).start()
    with running_broker() as broker, socket.create_server(("127.0.0.1", port)) as listener:
        host, _, inner = broker.url.removeprefix("amqp://").partition(":")
        print("listening", flush=True)
        Door((host, int(inner)), fault, word).serve(listener)


def command(port: int, fault: str, word: str) -> list[str]:
    """What starts it."""
    return [sys.executable, "-m", "tests.conformance.mortal_broker", str(port), fault, word]


@contextmanager
def mortal_broker(port: int, fault: str, word: str) -> Iterator[subprocess.Popen[str]]:
    """It, until the block ends; its whole group ends with it."""
    process = subprocess.Popen(
        command(port, fault, word),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"MORTAL_GUARD": "1"},
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "listening\n"
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


if __name__ == "__main__":
    main()

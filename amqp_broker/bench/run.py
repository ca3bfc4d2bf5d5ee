"""The processes of a run: started, let go together, listened to, and ended."""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from typing import Any, Final

from amqp_broker.bench.settings import BenchSettings

READ_BYTES: Final = 65_536

Client = Callable[[str, int, BenchSettings], list[str]]
"""The command of a process that plays a role of a pair, and speaks as `worker` does."""


def python_client(role: str, pair: int, settings: BenchSettings) -> list[str]:
    """The client of this package."""
    return [sys.executable, "-m", "amqp_broker.bench.worker", role, str(pair), settings.to_json()]


class Worker:
    """One process of the run and what it has said so far."""

    def __init__(self, client: Client, role: str, pair: int, settings: BenchSettings) -> None:
        self.name = f"{role}-{pair}"
        self.role = role
        self.ready = False
        self.at = 0
        self.paused = False
        self.result: dict[str, Any] | None = None
        self.error: str | None = None
        self._begun = b""  # of a line
        command = client(role, pair, settings)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @property
    def output(self) -> BufferedReader:
        """Where its lines come from."""
        assert isinstance(self.process.stdout, BufferedReader)
        return self.process.stdout

    def listen(self) -> bool:
        """Wait for what it says, and take in all that has come; False at the end of the output."""
        came = self.output.read1(READ_BYTES)
        *lines, self._begun = (self._begun + came).split(b"\n")
        for line in lines:
            said = json.loads(line)
            self.ready = said.get("ready", self.ready)
            self.at = said.get("at", self.at)
            self.paused = said.get("paused", self.paused)
            self.result = said.get("result", self.result)
            self.error = said.get("error", self.error)
        return bool(came)

    def wait_until_ready(self) -> None:
        """Raises RuntimeError with what it said instead."""
        while not self.ready and self.error is None and self.listen():
            pass
        self.check(self.ready)

    def check(self, well: object) -> None:
        """Raises RuntimeError with what it said, unless all is well."""
        if not well or self.error:
            raise RuntimeError(self.error or f"{self.name} ended with {self.process.wait()}")

    def begin(self) -> None:
        """Let it go; one that has ended already says why itself."""
        assert self.process.stdin is not None
        self.paused = False
        try:
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return

    def end(self) -> None:
        """Leave no process behind."""
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def started(
    settings: BenchSettings, client: Client = python_client, roles: Sequence[str] = ()
) -> Iterator[list[Worker]]:
    """The processes of these roles (by default all of the settings), once all are ready; they are ended with
    the block. Raises RuntimeError with the first one's error.
    """
    workers: list[Worker] = []
    try:
        for role in roles or settings.roles:
            fresh = [Worker(client, role, pair, settings) for pair in range(settings.pairs)]
            workers += fresh
            for worker in fresh:
                worker.wait_until_ready()
        yield workers
    finally:
        for worker in workers:
            worker.end()


def measure(
    settings: BenchSettings,
    client: Client = python_client,
    *,
    roles: Sequence[str] = (),
    progress: Callable[[list[Worker], float], None] = lambda workers, seconds: None,
    mark: Callable[[], None] = lambda: None,
) -> dict[str, dict[str, Any]]:
    """Run the processes; their results by name. Raises RuntimeError with the first one's error.

    `mark` is called when the measuring begins and when it ends; `progress` whenever one has said something,
    with the seconds since the beginning.
    """
    with started(settings, client, roles) as workers:
        mark()
        for worker in workers:
            worker.begin()
        begun, measuring = time.monotonic(), True
        with selectors.DefaultSelector() as selector:
            for worker in workers:
                selector.register(worker.output, selectors.EVENT_READ, worker)
            while selector.get_map() and not any(worker.error for worker in workers):
                for key, _ in selector.select():
                    if not key.data.listen():
                        selector.unregister(key.fileobj)
                if measuring and all(worker.paused or worker.result for worker in workers):
                    measuring = False
                    mark()
                    # All have measured: from now on they may disturb each other.
                    for worker in workers:
                        if worker.paused:
                            worker.begin()
                progress(workers, time.monotonic() - begun)
        for worker in sorted(workers, key=lambda worker: worker.error is None):
            worker.check(worker.result is not None)
        return {worker.name: worker.result for worker in workers if worker.result is not None}

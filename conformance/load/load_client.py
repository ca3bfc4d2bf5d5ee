"""The C load client as a Python function: builds it, runs a sender and a receiver for each pair, adds up."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs

from amqp_broker.conformance.load.processes import machine_seconds, processor_seconds


class LoadError(Exception):
    """A client did not come to its end: what it said."""


@attrs.frozen(kw_only=True)
class Load:
    """One measurement: how much of what, and how it is settled."""

    name: str
    durable: bool = False
    settled: bool = False
    body: int = 100
    credit: int = 1_000
    in_flight: int = 1_000
    pairs: int = 1
    settle_each: bool = False
    most_seconds: float = 120.0

    def options(self, count: int) -> list[str]:
        """As rawload and protonload take them."""
        options = ["--count", str(count), "--body", str(self.body), "--credit", str(self.credit)]
        options += ["--inflight", str(self.in_flight)]
        options += (
            ["--durable"] * self.durable + ["--settled"] * self.settled + ["--ack-each"] * self.settle_each
        )
        return options


def build(folder: Path, program: str = "rawload") -> Path:
    """Compile a client into a folder outside the tree; raises LoadError with the compiler's words."""
    command = ["make", "--silent", "-C", str(Path(__file__).parent), f"OUT={folder}", f"{folder}/{program}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise LoadError(done.stderr)
    return folder / program


class Client:
    """One client process."""

    def __init__(
        self, program: Path, mode: str, host: str, port: int, address: str, options: list[str]
    ) -> None:
        command = [str(program), mode, host, str(port), address, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_until_attached(self) -> None:
        """A receiver says `ready` once its link stands."""
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        if "ready" not in line:
            raise LoadError(line + self.process.stderr.read())

    def result(self, limit_s: float) -> dict[str, Any]:
        """Its JSON line."""
        try:
            output, errors = self.process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise LoadError(f"not done after {limit_s} s") from None
        if self.process.returncode:
            raise LoadError(errors.strip() or f"exit status {self.process.returncode}")
        found: dict[str, Any] = json.loads(output)
        return found

    def end(self) -> None:
        """Leave no process behind."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


@contextmanager
def client(
    program: Path, mode: str, host: str, port: int, address: str, options: list[str]
) -> Iterator[Client]:
    """A client that is ended at the end."""
    started = Client(program, mode, host, port, address, options)
    try:
        yield started
    finally:
        started.end()


def run_load(
    program: Path, load: Load, count: int, host: str, port: int, address: str, pid: int = 0
) -> dict[str, Any]:
    """Send `count` messages through each pair's queue and receive them.

    The rate is count / (last received - first sent). `pid` is the broker's, for its processor time.
    """
    names = [address] if load.pairs == 1 else [f"{address}{pair}" for pair in range(load.pairs)]
    options = load.options(count)
    with ExitStack() as clients:
        receivers = [
            clients.enter_context(client(program, "recv", host, port, name, options)) for name in names
        ]
        for receiver in receivers:
            receiver.wait_until_attached()
        broker, busy, begun = processor_seconds(pid) if pid else 0.0, machine_seconds(), time.monotonic()
        senders = [
            clients.enter_context(client(program, "send", host, port, name, options)) for name in names
        ]
        sent = [sender.result(load.most_seconds) for sender in senders]
        received = [receiver.result(load.most_seconds) for receiver in receivers]
        broker = processor_seconds(pid) - broker if pid else 0.0
        busy, wall = machine_seconds() - busy, time.monotonic() - begun
    own = sum(result["cpu_user"] + result["cpu_sys"] for result in sent + received)
    elapsed = max(result["t_last"] for result in received) - min(result["t_first"] for result in sent)
    total = count * load.pairs
    return {
        "name": load.name,
        "rate": total / elapsed,
        "elapsed": elapsed,
        "count": total,
        "broker_us": broker / total * 1e6,
        "client_us": own / total * 1e6,
        "other_cores": max(0.0, busy - broker - own) / wall,
        "gaps": sum(result.get("gaps", 0) for result in received),
        "duplicates": sum(result.get("dups", 0) for result in received),
        "latency_us": max((result["latency_us"] for result in received), key=lambda found: found["p99"]),
    }


def run_round_trips(
    program: Path, load: Load, count: int, host: str, port: int, address: str, rate: float
) -> dict[str, Any]:
    """One message at a time, `rate` a second at most: the percentiles of delivery and outcome."""
    options = [*load.options(count), "--rate", str(rate)]
    with client(program, "rtt", host, port, address, options) as started:
        return started.result(load.most_seconds)


def measured_load(
    program: Path, load: Load, seconds: float, host: str, port: int, address: str, pid: int = 0
) -> dict[str, Any]:
    """A warm-up that finds a count which lasts about `seconds`, then the run that counts."""
    count = 200
    for _ in range(3):
        result = run_load(program, load, count, host, port, address, pid)
        fitting = max(200, int(result["rate"] / load.pairs * seconds))
        if result["elapsed"] > seconds / 4:
            break
        count = min(fitting, count * 20)
    return run_load(program, load, fitting, host, port, address, pid)

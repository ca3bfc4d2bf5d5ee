"""Reading a retained node by offset while producers write: `python -m tests.benchmarks.retained`.

A broker process on disk retains a queue of a million messages that were sent and received. Measured are: a
reader from the middle to the end with nothing else to do; a pair that sends and receives through the same
queue alone; the same pair beside readers that begin in the middle again and again. Exit status 1 if the pair
had less than 70 % of its rate, or if the memory of the broker grew by more than 64 MiB while they read.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import struct
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.halves import resident_mib
from tests.crash.broker_process import BrokerProcess
from tests.support.retained import read
from tests.support.wire_client import WireConnection

LEAST_SHARE: Final = 0.7
MOST_GROWTH_MIB: Final = 64.0
CREDIT: Final = 2**31 - 1
READ_BYTES: Final = 1 << 20
CONFIGURATION: Final = """
[[queue]]
pattern = "kept"
retention_ms = 86400000
"""


def bench(url: str, count: int, body: int) -> float:
    """Durable messages a second of one pair through the queue that retains."""
    command = [sys.executable, "-m", "amqp_broker", "bench", url, "--durable", "--json", "--no-sasl"]
    arguments = ["--address", "kept", "--count", str(count), "--body", str(body)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    report = found[0] if isinstance(found, list) else found
    return float(report["messages_per_second"])


class FrameCounter:
    """Counts frames by their sizes (2.3.1); a client in C would not take less of the machine's time."""

    def __init__(self) -> None:
        self.frames = 0
        self._rest = b""
        self._size = struct.Struct(">I").unpack_from

    def feed(self, data: bytes) -> int:
        """How many frames are complete now."""
        data = self._rest + data
        at, end, size_at = 0, len(data), self._size
        while at + 4 <= end:
            size = size_at(data, at)[0]
            if at + size > end:
                break
            at += size
            self.frames += 1
        self._rest = data[at:]
        return self.frames


def read_from(port: int, start: int, until: int | None, seen: Synchronized[int]) -> None:
    """Read pre-settled messages, and count them in `seen`; without `until` begin anew at its end, for
    ever.
    """
    with WireConnection.connect("127.0.0.1", port, timeout=60) as connection:
        session = connection.begin()
        reader = read(session, "kept", start, until=until, credit=0, settled=True)
        attach = reader.remote_attach
        assert attach is not None and attach.properties is not None
        last = attach.properties["next"].value if until is None else until
        reader.flow(CREDIT)
        connection.flush()
        counter = FrameCounter()
        before = seen.value
        while counter.frames < last - start:
            data = connection.transport.recv(READ_BYTES)
            if not data:
                return
            seen.value = before + counter.feed(data)
    if until is None:
        read_from(port, start, None, seen)


class Reading:
    """A reader in a process of its own."""

    def __init__(self, port: int, start: int, until: int | None) -> None:
        self.seen: Synchronized[int] = multiprocessing.Value("q", 0)
        self._process = multiprocessing.Process(target=read_from, args=(port, start, until, self.seen))
        self._process.start()

    def wait(self) -> None:
        """Until it has read what it wanted."""
        self._process.join()

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.join()


class Memory:
    """The largest memory of a process from now on, looked at ten times a second."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.before_mib = self.most_mib = resident_mib(pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self.most_mib = max(self.most_mib, resident_mib(self._pid))

    def stop(self) -> float:
        """By how many MiB it grew at most."""
        self._over.set()
        self._thread.join()
        return self.most_mib - self.before_mib


def measure(arguments: argparse.Namespace, directory: Path) -> bool:
    """Run it all and print; whether the bounds were kept."""
    configuration = directory / "broker.toml"
    configuration.write_text(CONFIGURATION)
    main = f"main([*sys.argv[1:], '--config', {str(configuration)!r}])"
    serve = f"import sys; from amqp_broker.command_line import main; raise SystemExit({main})"
    broker = BrokerProcess(directory / "data", directory / "log", command=(sys.executable, "-c", serve))
    try:
        port = broker.wait_until_listening()
        url = f"amqp://127.0.0.1:{port}"
        count, body = arguments.messages, arguments.body
        print(f"filling: {bench(url, count, body):,.0f} messages/s", flush=True)
        memory = Memory(broker.process.pid)
        begun = time.perf_counter()
        reading = Reading(port, count // 2, count)
        reading.wait()
        idle = reading.seen.value / (time.perf_counter() - begun)
        print(f"a reader alone: {idle:,.0f} messages/s, memory +{memory.stop():.0f} MiB", flush=True)
        return beside(arguments, broker.process.pid, port)
    finally:
        broker.kill()


def middle(figures: list[float]) -> float:
    """The median."""
    return sorted(figures)[len(figures) // 2]


def beside(arguments: argparse.Namespace, pid: int, port: int) -> bool:
    """The pair alone, and beside readers, in turns."""
    url = f"amqp://127.0.0.1:{port}"
    alone: list[float] = []
    shared: list[float] = []
    growths: list[float] = []
    for _ in range(arguments.rounds):
        alone.append(bench(url, arguments.pair, arguments.body))
        memory = Memory(pid)
        begun = time.perf_counter()
        readings = [Reading(port, arguments.messages // 2, None) for _ in range(arguments.readers)]
        shared.append(bench(url, arguments.pair, arguments.body))
        seconds = time.perf_counter() - begun
        for reading in readings:
            reading.stop()
        read_rate = sum([reading.seen.value for reading in readings]) / seconds
        growths.append(memory.stop())
        print(
            f"pair alone {alone[-1]:,.0f}/s, beside readers {shared[-1]:,.0f}/s "
            f"({shared[-1] / alone[-1]:.0%}), readers {read_rate:,.0f}/s, "
            f"memory {memory.before_mib:.0f} +{growths[-1]:.0f} MiB",
            flush=True,
        )
    share, growth = middle(shared) / middle(alone), max(growths)
    print(f"the pair kept {share:.0%} of its rate; memory grew by {growth:.0f} MiB at most")
    return share >= LEAST_SHARE and growth <= MOST_GROWTH_MIB


def main(arguments: Any = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.retained", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="retained")
    parser.add_argument("--pair", type=int, default=200_000, help="messages of the pair in each round")
    parser.add_argument("--body", type=int, default=100, help="bytes")
    parser.add_argument("--readers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    with tempfile.TemporaryDirectory() as directory:
        return 0 if measure(parser.parse_args(arguments), Path(directory)) else 1


if __name__ == "__main__":
    raise SystemExit(main())

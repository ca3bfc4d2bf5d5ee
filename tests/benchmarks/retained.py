"""Reading a retained node by offset while producers write: `python -m tests.benchmarks.retained`.

A broker process on disk retains a queue of a million messages that were sent and received. Measured are: a
reader from the middle to the end with nothing else to do; then a pair that sends and receives through the
same queue, in windows of some seconds with readers that begin in the middle again and again, and without, in
turns, and how much of a processor the broker uses: where it is far from a whole one, the clients are what
limits the pair. Exit status 1 if the pair had less than 70 % of its rate, or if the memory of the broker
grew by more than 64 MiB while they read.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any, Final

import attrs

from amqp_broker.testing.blocking_peer import BlockingPeer
from tests.benchmarks.halves import resident_mib
from tests.crash.broker_process import BrokerProcess
from tests.support.retained import Asker, read

LEAST_SHARE: Final = 0.7
MOST_GROWTH_MIB: Final = 64.0
CREDIT: Final = 2**31 - 1
READ_BYTES: Final = 1 << 20
CONFIGURATION: Final = """
[[queue]]
pattern = "kept"
retention_ms = 86400000
"""


def bench_command(url: str, count: int, body: int) -> list[str]:
    """A pair that sends and receives durable messages through the queue that retains."""
    command = [sys.executable, "-m", "amqp_broker", "bench", url, "--durable", "--json", "--no-sasl"]
    return [*command, "--address", "kept", "--count", str(count), "--body", str(body)]


def bench(url: str, count: int, body: int) -> float:
    """Its messages a second."""
    done = subprocess.run(bench_command(url, count, body), capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    report = found[0] if isinstance(found, list) else found
    return float(report["messages_per_second"])


def cpu_s(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
    with BlockingPeer.connect("127.0.0.1", port, timeout=60) as connection:
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


@attrs.frozen
class Window:
    """Some seconds of the pair: its messages a second and those of the readers, and the processors that the
    broker used.
    """

    rate: float
    read_rate: float
    processors: float

    def __str__(self) -> str:
        return f"{self.rate:,.0f}/s (broker {self.processors:.0%} of a processor)"


class Watch:
    """Looks at the broker while the pair runs."""

    def __init__(self, arguments: argparse.Namespace, pid: int, port: int) -> None:
        self._arguments = arguments
        self._pid = pid
        self._port = port
        self._connection = BlockingPeer.connect("127.0.0.1", port, timeout=60)
        self._asker = Asker(self._connection.begin())

    def end(self) -> int:
        """The next offset: what the pair has sent."""
        found: int = self._asker.ask("describe", address="kept")["nodes"][0]["next"]
        return found

    def window(self, readers: int) -> Window:
        """One of them, with so many readers."""
        middle = self._arguments.messages // 2
        readings = [Reading(self._port, middle, None) for _ in range(readers)]
        begun, before, used = time.perf_counter(), self.end(), cpu_s(self._pid)
        seen = sum([reading.seen.value for reading in readings])
        while time.perf_counter() < begun + self._arguments.window:
            self._connection.pump(0.5)
        seconds = time.perf_counter() - begun
        sent, used = self.end() - before, cpu_s(self._pid) - used
        seen = sum([reading.seen.value for reading in readings]) - seen
        for reading in readings:
            reading.stop()
        return Window(sent / seconds, seen / seconds, used / seconds)


def middle(figures: list[float]) -> float:
    """The median."""
    return sorted(figures)[len(figures) // 2]


def beside(arguments: argparse.Namespace, pid: int, port: int) -> bool:
    """The pair alone, and beside readers, in turns."""
    watch = Watch(arguments, pid, port)
    alone: list[Window] = []
    shared: list[Window] = []
    before = watch.end()
    command = bench_command(f"amqp://127.0.0.1:{port}", arguments.pair, arguments.body)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as pair:
        while watch.end() < before + 1_000:
            assert pair.poll() is None, "the pair ended before it began"
        memory = Memory(pid)
        for _ in range(arguments.rounds):
            both = watch.window(0), watch.window(arguments.readers)
            if pair.poll() is not None:
                break
            alone.append(both[0])
            shared.append(both[1])
            print(
                f"alone {both[0]}; beside readers {both[1]}, who have {both[1].read_rate:,.0f}/s", flush=True
            )
        growth = memory.stop()
        pair.terminate()
    if not alone:
        print("the pair ended before the readers could be measured beside it: --pair")
        return False
    share = middle([each.rate for each in shared]) / middle([each.rate for each in alone])
    print(f"the pair kept {share:.0%} of its rate beside readers")
    print(f"memory of the broker: {memory.before_mib:.0f} MiB, +{growth:.0f} MiB at most while they read")
    return share >= LEAST_SHARE and growth <= MOST_GROWTH_MIB


def main(arguments: Any = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.retained", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="retained")
    parser.add_argument("--pair", type=int, default=3_000_000, help="messages of the pair at most")
    parser.add_argument("--body", type=int, default=100, help="bytes")
    parser.add_argument("--readers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=6, help="pairs of windows, without and with readers")
    parser.add_argument("--window", type=float, default=3.0, help="seconds")
    with tempfile.TemporaryDirectory() as directory:
        return 0 if measure(parser.parse_args(arguments), Path(directory)) else 1


if __name__ == "__main__":
    raise SystemExit(main())

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
import multiprocessing
import struct
import tempfile
import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from statistics import median_high
from typing import Final

import attrs

from amqp_broker.bench.command_line import fresh_run
from amqp_broker.bench.run import Worker, started
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.conformance.load.processes import Memory, processor_seconds
from amqp_broker.testing.blocking_peer import BlockingPeer
from tests.benchmarks.harness import options, sent, spent
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


def measure(arguments: argparse.Namespace, directory: Path) -> bool:
    """Run it all and print; whether the bounds were kept."""
    configuration = directory / "broker.toml"
    configuration.write_text(CONFIGURATION)
    broker = BrokerProcess(directory / "data", directory / "log", config=configuration)
    try:
        port = broker.wait_until_listening()
        count, body = arguments.messages, arguments.body
        filling = sent(port, "kept", count, body=body, durable=True)
        print(f"filling: {filling['messages_per_second']:,.0f} messages/s", flush=True)
        with Memory(broker.process.pid) as memory, spent() as took:
            reading = Reading(port, count // 2, count)
            reading.wait()
        idle, growth = reading.seen.value / took.wall, memory.growth_kib / 1_024
        print(f"a reader alone: {idle:,.0f} messages/s, memory +{growth:.0f} MiB", flush=True)
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
        begun, before, used = time.perf_counter(), self.end(), processor_seconds(self._pid)
        seen = sum([reading.seen.value for reading in readings])
        while time.perf_counter() < begun + self._arguments.window:
            self._connection.pump(0.5)
        seconds = time.perf_counter() - begun
        sent, used = self.end() - before, processor_seconds(self._pid) - used
        seen = sum([reading.seen.value for reading in readings]) - seen
        for reading in readings:
            reading.stop()
        return Window(sent / seconds, seen / seconds, used / seconds)


def ended(pair: list[Worker]) -> bool:
    """One of them is done."""
    return any(worker.process.poll() is not None for worker in pair)


def beside(arguments: argparse.Namespace, pid: int, port: int) -> bool:
    """The pair alone, and beside readers, in turns."""
    watch = Watch(arguments, pid, port)
    alone: list[Window] = []
    shared: list[Window] = []
    before = watch.end()
    settings = BenchSettings(
        host="127.0.0.1", port=port, address="kept", count=arguments.pair, body=arguments.body, durable=True,
        run=fresh_run(),
    )  # fmt: skip
    with started(settings) as pair:
        for worker in pair:
            worker.begin()
        while watch.end() < before + 1_000:
            assert not ended(pair), "the pair ended before it began"
        with Memory(pid) as memory:
            for _ in range(arguments.rounds):
                both = watch.window(0), watch.window(arguments.readers)
                if ended(pair):
                    break
                alone.append(both[0])
                shared.append(both[1])
                readers = f"beside readers {both[1]}, who have {both[1].read_rate:,.0f}/s"
                print(f"alone {both[0]}; {readers}", flush=True)
    if not alone:
        print("the pair ended before the readers could be measured beside it: --pair")
        return False
    share = median_high([each.rate for each in shared]) / median_high([each.rate for each in alone])
    print(f"the pair kept {share:.0%} of its rate beside readers")
    before_mib, growth = memory.before_kib / 1_024, memory.growth_kib / 1_024
    print(f"memory of the broker: {before_mib:.0f} MiB, +{growth:.0f} MiB at most while they read")
    return share >= LEAST_SHARE and growth <= MOST_GROWTH_MIB


def main() -> int:
    """The command. `pair` is how many messages the pair sends at most, `rounds` the pairs of windows, of
    `window` seconds, without and with readers.
    """
    chosen = options(
        __doc__, messages=1_000_000, pair=3_000_000, body=100, readers=1, rounds=6, window=3.0
    )
    with tempfile.TemporaryDirectory() as directory:
        return 0 if measure(chosen, Path(directory)) else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""Measures half messages: `python -m amqp_broker.conformance.load.halves [--compiled]` prints put, commit and
delivery a second, and what each costs the broker.

    sender --put--> $half/<group>/<queue>      sender --commit--> $half-resolve/<group>
    receiver <-- the queue                     many of each are in flight at once

A commit is sent when its put was accepted. All frames are prepared before the clock starts, so that the
client takes a small part of a core. A run is right if everything was accepted, and delivered once and in
order.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from amqp_broker.bench.receiver import Receiver
from amqp_broker.bench.sender import Sender
from amqp_broker.bench.settings import SMALLEST_BODY, BenchSettings
from amqp_broker.bench.shapes import Shape
from amqp_broker.bench.wire import BenchError, wait_for
from amqp_broker.conformance.load.compiled_tree import compile_copy
from amqp_broker.conformance.load.processes import (
    BrokerProcess,
    machine_seconds,
    processor_seconds,
    running,
    wait_for_quiet,
)
from amqp_broker.frames import Header, Properties, Transfer, encode_frame, encode_message

GROUP: Final = "bench"
WARM_UP: Final = 2_000
TRANSFER: Final = b"\x00\x53\x14"
SLICE: Final = 500  # messages in one write
HEADS: Final = (
    "half messages (put, commit, delivered)", "a second", "broker us each", "client us each", "others, cores",
)  # fmt: skip


class Frames:
    """Prepared transfers, in place of the block of a bench sender."""

    frames = 1
    stride = 1

    def __init__(self, frames: Sequence[bytes]) -> None:
        self._frames = frames
        self.size = len(frames)

    def prepare(self, number: int) -> int:
        """The place of this message."""
        return number

    def stamped(self, place: int, end: int, now_ns: int) -> memoryview:
        """The bytes of these messages."""
        return memoryview(b"".join(self._frames[place:end]))


class FrameSender(Sender):
    """A sender of prepared transfers."""

    def __init__(self, settings: BenchSettings, pair: int, frames: Sequence[bytes]) -> None:
        super().__init__(settings, pair)
        self.block = Frames(frames)  # type: ignore[assignment]


class OrderedReceiver(Receiver):
    """A receiver that wants the numbers in order and reads nothing else of a message: half-ids of several
    lengths stand before its body, which the shapes of the bench do not know.
    """

    def __init__(self, settings: BenchSettings, pair: int) -> None:
        super().__init__(settings, pair)
        self._next = 0
        self._first_id = -1
        self._number_at = max(settings.body, SMALLEST_BODY) - 8  # octets before the end of a frame

    def turn(self) -> None:
        """Read once, account for the messages, answer once."""
        wire = self.wire
        if not wire.read():
            return
        begun = self._next
        while size := wire.frame_size(wire.start):
            at = wire.start
            wire.start += size
            if wire.buffer[at + 8 : at + 11] != TRANSFER:
                self._frame(wire.other_frame(at, size))
                continue
            if self._first_id < 0:
                self._first_id = Shape(bytes(wire.buffer[at : at + size])).delivery_id(wire.buffer, at)
            number_at = at + size - self._number_at
            number = int.from_bytes(wire.buffer[number_at : number_at + 8], "big")
            if number != self._next:
                raise BenchError(f"message {number} was delivered, expected {self._next}")
            self._next += 1
        count = self._next - begun
        if count:
            wire.next_incoming_id += count
            self.ledger.add_run(begun, count)
            self._delivered(self._first_id + begun, count, settled=False)
        self._accept()
        self._renew()


def transfers(payloads: Iterator[bytes]) -> list[bytes]:
    """One frame for each."""
    found = []
    for number, payload in enumerate(payloads):
        head = Transfer(
            handle=0,
            delivery_id=number,
            delivery_tag=number.to_bytes(4, "big"),
            message_format=0,
            settled=False,
        )
        found.append(encode_frame(0, head, payload))
    return found


def puts(settings: BenchSettings) -> Iterator[bytes]:
    """Half messages; the body begins with what the receiver of the bench looks at."""
    stamp = time.monotonic_ns().to_bytes(8, "big")
    filling = bytes(max(settings.body, SMALLEST_BODY) - SMALLEST_BODY)
    for number in range(settings.count):
        body = settings.run.to_bytes(8, "big") + number.to_bytes(8, "big") + stamp + filling
        properties = Properties(message_id=f"half-{settings.run}-{number}")
        yield encode_message(header=Header(durable=True), properties=properties, body=body)


def commits(settings: BenchSettings) -> Iterator[bytes]:
    """Their resolutions."""
    for number in range(settings.count):
        properties = Properties(correlation_id=f"half-{settings.run}-{number}", subject="commit")
        yield encode_message(properties=properties, body=b"")


@attrs.frozen
class HalfRun:
    """One run: how many, how long, and the processor time of the broker, the client and everything else."""

    count: int
    seconds: float
    broker_s: float
    client_s: float
    others_s: float

    def row(self, name: str) -> list[str]:
        """The columns of the table."""
        return [
            name,
            f"{self.count / self.seconds:,.0f}",
            f"{self.broker_s / self.count * 1e6:.1f}",
            f"{self.client_s / self.count * 1e6:.1f}",
            f"{self.others_s / self.seconds:.2f}",
        ]


def once(broker: BrokerProcess, settings: BenchSettings) -> HalfRun:
    """One run. Raises BenchError when an answer or a delivery is not the expected one."""
    put_at = attrs.evolve(settings, address=f"$half/{GROUP}/{settings.address}")
    put = FrameSender(put_at, 0, transfers(puts(settings)))
    resolve = FrameSender(
        attrs.evolve(settings, address=f"$half-resolve/{GROUP}"), 1, transfers(commits(settings))
    )
    receiver = OrderedReceiver(settings, 0)
    begun, client, machine = time.monotonic(), time.process_time(), machine_seconds()
    used = processor_seconds(broker.pid)
    deadline = begun + settings.timeout_s
    while not (put.finished and resolve.finished and receiver.finished):
        put.turn(SLICE)
        resolve.turn(min(SLICE, put.settled - resolve.sent))  # accepted in order: one link, one broker
        receiver.turn()
        if put.outcomes[0] < put.settled or resolve.outcomes[0] < resolve.settled:
            raise BenchError(f"not accepted: puts {put.outcomes}, commits {resolve.outcomes}")
        if time.monotonic() > deadline:
            raise BenchError(f"{receiver.ledger.lost} of {settings.count} are missing")
        wait_for(put.wire, resolve.wire, receiver.wire, timeout_s=0.1)
    seconds = time.monotonic() - begun
    used = processor_seconds(broker.pid) - used
    client = time.process_time() - client
    others = max(0.0, machine_seconds() - machine - used - client)
    found = receiver.result()
    for each in (put, resolve, receiver):
        each.wire.close()
    wrong = {key: found[key] for key in ("duplicates", "out_of_order", "foreign") if found.get(key)}
    if wrong:
        raise BenchError(f"wrong deliveries: {wrong}")
    return HalfRun(settings.count, seconds, used, client, others)


def main(argv: list[str]) -> int:
    """Measure and print; 1 when a run was not right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--compiled", action="store_true", help="compile a copy of this checkout and measure that")
    add("--tree", type=Path, help="measure this (compiled) copy")
    add("--halves", type=int, default=40_000, help="of one run (default %(default)s)")
    add("--in-flight", type=int, default=1_000, help="puts, commits and deliveries without an answer")
    add("--body", type=int, default=100, help="octets")
    add("--runs", type=int, default=3, help="of which the one with the median rate counts")
    add("--patience", type=float, default=60.0, help="seconds to wait before each run for a quiet machine")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        tree: Path | None = options.tree
        if options.compiled and tree is None:
            tree = compile_copy(Path(folder) / "tree")
        with running("--data", f"{folder}/data", tree=tree) as broker:
            settings = BenchSettings(
                host=broker.host, port=broker.port, durable=True, body=options.body, timeout_s=120.0,
                credit=options.in_flight, in_flight=options.in_flight,
            )  # fmt: skip
            once(broker, attrs.evolve(settings, count=WARM_UP, address="warm", run=1))
            runs = []
            for number in range(options.runs):
                wait_for_quiet(options.patience)
                case = attrs.evolve(
                    settings, count=options.halves, address=f"halves-{number}", run=number + 2
                )
                try:
                    runs.append(once(broker, case))
                except BenchError as error:
                    print(f"run {number}: {error}", file=sys.stderr)
                    return 1
                print(" | ".join(runs[-1].row(f"run {number}")), file=sys.stderr, flush=True)
    median = sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]
    name = f"{options.body} B, {options.in_flight:,} in flight"
    print("\n".join("| " + " | ".join(row) + " |" for row in (HEADS, ["---"] * len(HEADS), median.row(name))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""The cost of sets of half messages: `python -m tests.benchmarks.half_sets [--messages 100000]`.

Ordinary durable messages are posted to a queue, then as many are staged in a set, which is sealed and its
epoch committed. Told are the rates, the processor time of the broker for each message (which does not suffer
from other programs), the time of seal and commit, and the memory.
Exit status 1 if staging takes the broker a third more than posting, or its memory grew by more than 64 MiB
with the commit.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from amqp_broker.conformance.load.processes import processor_seconds, resident_kib
from amqp_broker.frames import Accepted, Rejected, plain_value
from amqp_broker.testing.blocking_peer import BlockingPeer
from tests.benchmarks.harness import options, sent, spent
from tests.crash.broker_process import BrokerProcess
from tests.support.half_sets import commit_of, seal_of
from tests.support.halves import resolver, tell

MOST_SHARE = 4 / 3
MOST_GROWTH_MIB = 64.0


def posted(broker: BrokerProcess, address: str, count: int) -> tuple[float, float]:
    """(messages a second, processor microseconds of the broker for each) of durable messages of 100 bytes."""
    before = processor_seconds(broker.process.pid)
    report = sent(broker.port, address, count, roles=("sender",), durable=True)
    return report["sent_per_second"], (processor_seconds(broker.process.pid) - before) / count * 1e6


def decide(broker: BrokerProcess, count: int) -> tuple[float, float, float]:
    """(seconds of the seal, seconds of the commit, MiB that the broker grew by with the commit)."""
    with BlockingPeer.connect("127.0.0.1", broker.port, timeout=60) as connection:
        resolve = resolver(connection.begin())
        told = tell(resolve, seal_of("s1", count, 0))
        assert isinstance(told, Rejected) and told.error is not None and told.error.info is not None, told
        checksum = plain_value(told.error.info)["half_checksum"]
        with spent() as sealed:
            assert isinstance(tell(resolve, seal_of("s1", count, checksum)), Accepted)
        memory = resident_kib(broker.process.pid)
        with spent() as committed:
            assert isinstance(tell(resolve, commit_of(("s1", count, checksum))), Accepted)
        return sealed.wall, committed.wall, (resident_kib(broker.process.pid) - memory) / 1_024


def main() -> int:
    """Measure; the exit status."""
    count = options(__doc__, messages=100_000).messages
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder) / "data", Path(folder) / "log")
        try:
            broker.wait_until_listening()
            posted(broker, "warm", count // 10)
            plain_rate, plain_us = posted(broker, "plain", count)
            staged_rate, staged_us = posted(broker, "$half-set/g/p/1/s1/sets", count)
            sealed, committed, growth = decide(broker, count)
        finally:
            broker.kill()
    print(f"posted  {plain_rate:9,.0f} messages/s, {plain_us:5.1f} us of the broker for each")
    print(f"staged  {staged_rate:9,.0f} messages/s, {staged_us:5.1f} us of the broker for each")
    print(f"seal    {sealed * 1000:9.1f} ms")
    print(f"commit  {committed * 1000:9.1f} ms for {count:,} messages; memory grew by {growth:.1f} MiB")
    return int(staged_us > plain_us * MOST_SHARE or growth > MOST_GROWTH_MIB)


if __name__ == "__main__":
    sys.exit(main())

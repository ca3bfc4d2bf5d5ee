"""What the events of messages cost: `python -m tests.benchmarks.events`.

One broker process on disk, one pair that sends and receives through a queue without events and, in turns,
through one with them. Told are the medians of messages a second, of the processor time of the broker for each
message, and how many entries and rows the log has.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from amqp_broker.conformance.load.processes import processor_seconds
from amqp_broker.persistence.questions import EventRange
from amqp_broker.persistence.sqlite import SqliteStore
from tests.benchmarks.harness import options, sent
from tests.crash.broker_process import BrokerProcess

CONFIGURATION: Final = '[[queue]]\npattern = "told"\nevents = true\n'
QUEUES: Final = ("plain", "told")
MODES: Final[dict[str, dict[str, Any]]] = {"durable": {"durable": True}, "settled": {"settled": True}}
WARM_UP: Final = 5_000


def main() -> int:
    """The command."""
    chosen = options(__doc__, count=100_000, rounds=5)
    with tempfile.TemporaryDirectory(prefix="events-") as folder:
        directory = Path(folder)
        (directory / "broker.toml").write_text(CONFIGURATION)
        with BrokerProcess(
            directory / "data", directory / "broker.log", config=directory / "broker.toml"
        ) as broker:
            port = broker.wait_until_listening()
            for mode, changes in MODES.items():
                rates: dict[str, list[float]] = {queue: [] for queue in QUEUES}
                costs: dict[str, list[float]] = {queue: [] for queue in QUEUES}
                for queue in QUEUES:
                    sent(port, queue, WARM_UP, **changes)
                for number in range(chosen.rounds):
                    for queue in QUEUES[:: 1 if number % 2 else -1]:
                        before = processor_seconds(broker.process.pid)
                        report = sent(port, queue, chosen.count, **changes)
                        rates[queue].append(report["messages_per_second"])
                        used = processor_seconds(broker.process.pid) - before
                        costs[queue].append(1e6 * used / chosen.count)
                for queue in QUEUES:
                    rate, cost = statistics.median(rates[queue]), statistics.median(costs[queue])
                    words = "with events" if queue == "told" else "without"
                    print(
                        f"{mode}, {words:12}{rate:9,.0f} messages/s, {cost:6.2f} us of the broker", flush=True
                    )
            broker.stop()
        store = SqliteStore(directory / "data", ballast_bytes=0)
        first, after = store.ask(EventRange())
        ((rows, octets),) = store._connection.execute(
            "SELECT count(*), sum(length(CAST(fields AS BLOB))) FROM event"
        ).fetchall()
        store.close()
        entries = after - first
        print(f"{entries:,} entries in {rows:,} rows, {octets / entries:.1f} octets of fields for each")
    return 0


if __name__ == "__main__":
    sys.exit(main())

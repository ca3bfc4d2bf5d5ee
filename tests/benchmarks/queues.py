"""What traffic over many queues costs: `python -m tests.benchmarks.queues [--messages 100000]`.

A broker process on disk; the C load client has a link to each queue and sends durable messages of 100 octets
to all of them in turn, with 1,000 in flight, and then takes what waits in them. Printed are for 1, 10, 100,
1,000 and 10,000 queues messages a second and the broker's processor time for each, how long the links took to
be there, and the broker's memory. `--tree DIR` measures another checkout, a compiled one say; `--run 10`
sends ten messages to a queue before it is the next one's turn. It wants a C compiler.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import attrs

from amqp_broker.conformance.load.c_client import client_of
from amqp_broker.conformance.load.processes import processor_seconds, resident_kib
from amqp_broker.testing.broker_process import BrokerProcess, running
from tests.benchmarks.harness import options

QUEUES: Final = (1, 10, 100, 1_000, 10_000)
LINKS_OF_A_CONNECTION: Final = 2_500  # limits.max_links_per_session is 4,096


@attrs.frozen
class Taken:
    """What one case took: seconds until the links were there, and then; of the broker's processor."""

    attaching: float
    wall: float
    cpu: float

    def row(self, what: str, queues: int, count: int, broker: BrokerProcess) -> None:
        """Print it."""
        memory = resident_kib(broker.pid) / 1_024
        print(
            f"| {what}, {queues:,} queues | {count / self.wall:,.0f} | {self.cpu / count * 1e6:.1f} us | "
            f"{self.attaching:.2f} s | {memory:.0f} MiB |",
            flush=True,
        )


def clients(program: Path, mode: str, broker: BrokerProcess, queues: int, count: int, *more: str) -> Taken:
    """Each with its share of the queues and of the messages; nothing may be lost or come twice."""
    shares = max(1, queues // LINKS_OF_A_CONNECTION)
    links = queues // shares
    begun = perf_counter()
    processes = [
        subprocess.Popen(
            [
                str(program), mode, broker.host, str(broker.port), f"share-{share}-" if links > 1 else "one",
                "--links", str(links), "--count", str(count // shares), "--timeout", "120", *more,
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for share in range(shares)
    ]  # fmt: skip
    for process in processes:
        heard(process)
    attached, cpu = perf_counter(), processor_seconds(broker.pid)
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    results = [heard(process)["result"] for process in processes]
    wall = max(each["last_at"] for each in results) - min(each["first_at"] for each in results)
    taken = Taken(attached - begun, wall, processor_seconds(broker.pid) - cpu)
    for process, result in zip(processes, results, strict=True):
        assert process.wait() == 0 and not (result.get("lost") or result.get("duplicates")), result
    return taken


def heard(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line of a client. Raises RuntimeError where it gave up."""
    assert process.stdout is not None
    told: dict[str, Any] = json.loads(process.stdout.readline() or '{"error": "it ended"}')
    if "error" in told:
        raise RuntimeError(told["error"])
    return told


def main() -> None:
    """Measure all of it, each case with a broker of its own."""
    told = options(__doc__, messages=100_000, run=1, tree="", most_queues=QUEUES[-1])
    print("| case | messages/s | broker time a message | links | memory |\n|---|---|---|---|---|")
    for queues in [queues for queues in QUEUES if queues <= told.most_queues]:
        with tempfile.TemporaryDirectory() as folder:
            client_of("rawload", Path(folder))
            program = Path(folder) / "rawload"
            tree = Path(told.tree) if told.tree else None
            with running("--data", f"{folder}/data", tree=tree) as broker:
                sent = clients(
                    program, "send", broker, queues, told.messages, "--durable", "--run", str(told.run)
                )
                sent.row("sent", queues, told.messages, broker)
                taken = clients(program, "recv", broker, queues, told.messages, "--credit", "100")
                taken.row("taken", queues, told.messages, broker)


if __name__ == "__main__":
    main()

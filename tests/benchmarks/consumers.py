"""What 1, 10, 100 and 1,000 consumers of one queue cost, and whether they get equal parts.

`python -m tests.benchmarks.consumers`: a broker process on disk for each case, messages of 100 octets, the
consumers in one process of the C client (`rawload crowd`; a C compiler is needed), on connections of their
own or a hundred on each. Printed are messages a second from the first that came to the last, by how much that
is what one consumer gets, the broker's processor time for each, and the fewest and the most that one consumer
got, where all that came is 1.0 for each.

`--tree DIR` measures the broker of another checkout, `--messages 20000` a short run, `--credit 10` little
credit, `--senders 4` more of them.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import attrs

from amqp_broker.conformance.load.c_client import client_of
from amqp_broker.conformance.load.processes import processor_seconds
from amqp_broker.testing.broker_process import BrokerProcess, running
from tests.benchmarks.harness import options

CROWDS: Final = ((1, 1), (10, 1), (100, 1), (1_000, 1), (10, 10), (10, 100))
"""Connections, and links on each."""
CONFIGURATION: Final = """
[limits]
login_sockets = 2_000
login_sockets_per_address = 2_000
"""


@attrs.frozen
class Client:
    """One process of the C client, which is ready and waits for its start."""

    process: subprocess.Popen[str]

    @classmethod
    def begin(cls, program: Path, mode: str, broker: BrokerProcess, *arguments: str) -> Client:
        """Start it, and wait until its links are there."""
        command = [str(program), mode, broker.host, str(broker.port), "shared", *arguments]
        pipe = subprocess.PIPE
        made = cls(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))
        assert made.told() == {"ready": True}
        return made

    def told(self) -> dict[str, Any]:
        """Its next line."""
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def go(self) -> None:
        """Have it begin."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@attrs.frozen
class Case:
    """So many messages for a crowd, settled or durable."""

    durable: bool
    connections: int
    links: int
    told: Any

    @property
    def count(self) -> int:
        """All messages."""
        fewer = 1 if self.connections < 100 else 2
        senders: int = self.told.senders
        return int(self.told.messages) // fewer // senders * senders

    def measure(self, program: Path, broker: BrokerProcess) -> tuple[float, float, dict[str, Any]]:
        """Messages a second, the broker's microseconds for each, and what the crowd told."""
        told, count = self.told, self.count
        kind = () if self.durable else ("--settled",)
        where = ("--connections", str(self.connections), "--links", str(self.links))
        crowd = Client.begin(
            program, "crowd", broker, *kind, *where, "--credit", str(told.credit), "--count", str(count)
        )
        each = str(count // told.senders)
        kind = ("--durable",) if self.durable else kind
        senders = [
            Client.begin(program, "send", broker, *kind, "--count", each) for _ in range(told.senders)
        ]
        before = processor_seconds(broker.pid)
        for client in (crowd, *senders):
            client.go()
        for sender in senders:
            sender.told()
        result = crowd.told()["result"]
        used = processor_seconds(broker.pid) - before
        for client in (crowd, *senders):
            client.process.communicate()
        assert result["received"] == count, result
        return count / (result["last_at"] - result["first_at"]), used / count * 1e6, result


def main() -> None:
    """Measure all of it."""
    told = options(__doc__, messages=200_000, credit=1_000, senders=1, tree="")
    tree = Path(told.tree) if told.tree else None
    print("| consumers | messages/s | of one's | broker time | fewest, most |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        client_of("rawload", Path(folder))
        config = Path(folder) / "broker.toml"
        config.write_text(CONFIGURATION)
        for durable in (False, True):
            alone = 0.0
            for connections, links in CROWDS:
                case = Case(durable, connections, links, told)
                data = f"{folder}/{durable}-{connections}-{links}"
                with running("--data", data, "--config", str(config), tree=tree) as broker:
                    rate, cpu_us, found = case.measure(Path(folder) / "rawload", broker)
                alone = alone or rate
                name = f"{'durable' if durable else 'settled'}, {connections:,} x {links}"
                part = case.count / connections / links
                shares = f"{found['fewest'] / part:.2f}, {found['most'] / part:.2f}"
                part_of = f"{rate / alone:.2f} | {cpu_us:.1f} us"
                print(f"| {name} | {rate:,.0f} | {part_of} | {shares} |", flush=True)


if __name__ == "__main__":
    main()

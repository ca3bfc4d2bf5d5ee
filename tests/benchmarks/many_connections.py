"""Connections at work: `python -m tests.benchmarks.many_connections [--connections 10000] [--period 5]`.

Each has a session, a link that sends and one that receives, and a queue. In turns each sends a durable
message to the queue of the next one, once in each period; so each gets one, too. Told: what a connection
costs in memory before and after it worked, processor time, latency, refusals, and that nothing was lost.
Needs a C compiler, and descriptors: `ulimit -Hn` has to allow two for each connection.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from amqp_broker.bench.histogram import Histogram
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.client import connect
from amqp_broker.client.blocking_management import ManagementRequests
from amqp_broker.conformance.load.c_client import client_of
from amqp_broker.conformance.load.processes import processor_seconds, resident_kib
from amqp_broker.testing.blocking_peer import PATIENCE_S
from amqp_broker.testing.broker_process import BrokerProcess, running

SPARE_FILES: Final = 200
GONE_WITHIN_S: Final = 120.0
"""Connections that were cut, and the client that had them."""
POLL_S: Final = 0.02
CONFIGURATION: Final = """
[limits]
# While ten thousand connect, one after the other, the first ones are silent.
idle_time_out_ms = 600_000
"""


def started(client: str, broker: BrokerProcess, connections: int, rounds: int, period: float) -> Any:
    """The client, which says when its connections are all there."""
    options = {
        "--connections": connections, "--count": rounds, "--pace": connections / period, "--credit": 10,
        "--body": 100, "--timeout": 60,
    }  # fmt: skip
    words = [str(word) for pair in options.items() for word in pair]
    process = subprocess.Popen(
        [client, "talk", broker.host, str(broker.port), "talk.", "--durable", *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return process


def _said(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    told: dict[str, Any] = json.loads(line) if line else {"error": f"it ended with {process.wait()}"}
    if "error" in told:
        raise RuntimeError(told["error"])
    return told


def _when_gone(asker: ManagementRequests, deadline: float) -> Any:
    """What the broker says of itself once only who asks is connected; None where that takes too long."""
    while (told := asker.ask("READ", "broker", identity="self"))["connections"] > 1:
        if time.monotonic() > deadline:
            return None
        time.sleep(POLL_S)
    return told


def measured(
    client: str, broker: BrokerProcess, asker: ManagementRequests, connections: int, rounds: int,
    period: float,
) -> bool:  # fmt: skip
    """Measure, and print it; whether all was well."""
    before, begun, connecting = resident_kib(broker.pid), time.monotonic(), processor_seconds(broker.pid)
    process = started(client, broker, connections, rounds, period)
    try:
        _said(process)
        took, idle, spent = time.monotonic() - begun, resident_kib(broker.pid), processor_seconds(broker.pid)
        connecting = spent - connecting
        process.stdin.write("\n")
        process.stdin.flush()
        found = _said(process)["result"]
        going, busy = processor_seconds(broker.pid), resident_kib(broker.pid)
        spent = going - spent
        process.stdin.close()
        process.wait(GONE_WITHIN_S)
    finally:
        process.kill()
        process.wait()
    cut = time.monotonic()
    told = _when_gone(asker, cut + GONE_WITHIN_S)
    if told is None:
        print(f"after {GONE_WITHIN_S:g} s the broker still has connections that were cut")
        return False
    gone, refusals = time.monotonic() - cut, told["refusals"]
    going = processor_seconds(broker.pid) - going
    seconds, total = found["last_at"] - found["first_at"], connections * rounds
    took_us = Histogram.merged([found]).summary()
    print(
        f"{connections:,} connections, there after {took:.0f} s; each sends and receives a durable message "
        f"every {period:g} s, {rounds} times: {total / seconds:,.0f} messages/s\n"
        f"memory of each: {(idle - before) / connections:.1f} KiB at rest, "
        f"{(busy - before) / connections:.1f} KiB after its work (with two links, a session and a queue)\n"
        f"processor: {spent / seconds:.2f} of a core, {1e6 * spent / total:.0f} us for each message\n"
        f"latency: p50 {took_us['p50'] / 1e3:.1f} ms, p99 {took_us['p99'] / 1e3:.1f} ms, "
        f"p99.9 {took_us['p99.9'] / 1e3:.1f} ms, {took_us['max'] / 1e3:.1f} ms at most\n"
        f"accepted {found['outcomes']['accepted']:,} of {total:,}, received {found['received']:,}, "
        f"lost {found['lost']}, twice {found['duplicates']}, refusals {refusals or 'none'}\n"
        f"all cut at once: gone after {gone:.1f} s; processor: {1e3 * connecting / connections:.2f} ms for "
        f"each to connect, {1e3 * going / connections:.2f} ms to go"
    )
    whole = found["outcomes"]["accepted"] == found["received"] == total
    return bool(whole and not found["lost"] and not found["duplicates"] and not refusals)


def main(arguments: Sequence[str] | None = None) -> int:
    """1 where something was refused or lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.many_connections", description=__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--period", type=float, default=5.0, help="seconds, default %(default)s")
    parser.add_argument("--memory", action="store_true", help="a broker without a store")
    parser.add_argument("--rounds", type=int, default=12, help="messages of each, default %(default)s")
    options = parser.parse_args(arguments)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < options.connections + SPARE_FILES:
        parser.error(f"expected {options.connections + SPARE_FILES} descriptors, ulimit -Hn is {most}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "broker.toml").write_text(CONFIGURATION)
        client = client_of("rawload", folder)("sender", 0, BenchSettings(host="", port=0))[0]
        store = ("--memory",) if options.memory else ("--data", str(folder / "data"))
        with running(*store, "--config", str(folder / "broker.toml")) as broker:
            with connect(broker.url, timeout_s=PATIENCE_S) as looking:
                asker = ManagementRequests(looking, PATIENCE_S)
                well = measured(
                    client, broker, asker, options.connections, options.rounds, options.period
                )
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())

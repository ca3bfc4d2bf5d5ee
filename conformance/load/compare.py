"""Any broker with the C load client: `python -m amqp_broker.conformance.load.compare amqp://127.0.0.1:5690`.

The queue must exist or be made on first use, and be empty: what another run left shows as gaps. For other
brokers give the address as they want it (RabbitMQ 3: /queue/NAME, RabbitMQ 4: /queues/NAME), and `--pid` for
their processor time. Brokers differ in what "accepted" of a durable message means: look with
`strace -f -c -e trace=fsync,fdatasync -p PID` whether anything is synced before a figure is believed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from amqp_broker.conformance.load.load_client import Load, LoadError, build, measured_load, run_round_trips


def loads(options: argparse.Namespace) -> list[Load]:
    """The cells that the options ask for."""
    found = []
    for body in (int(part) for part in options.bodies.split(",")):
        for mode in options.modes.split(","):
            found.append(
                Load(
                    name=f"{mode} {body} B",
                    durable="durable" in mode,
                    settled=mode.endswith("settled") and not mode.endswith("unsettled"),
                    body=body,
                    credit=options.credit,
                    in_flight=options.in_flight,
                    pairs=options.pairs,
                    settle_each=options.settle_each,
                )
            )
    return found


def main(argv: list[str]) -> int:
    """Print one line for each cell; 1 when one of them failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("url")
    add("--address", default="bench")
    add("--client", default="rawload", choices=["rawload", "protonload"])
    add("--modes", default="settled,durable", help="any of settled, unsettled, durable, durable-settled")
    add("--bodies", default="100,10240")
    add("--credit", type=int, default=1_000)
    add("--in-flight", type=int, default=1_000)
    add("--pairs", type=int, default=1)
    add("--settle-each", action="store_true")
    add("--seconds", type=float, default=3.0)
    add("--runs", type=int, default=3)
    add("--pid", type=int, default=0)
    add("--rtt", action="store_true")
    options = parser.parse_args(argv)
    parts = urlsplit(options.url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 5672
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder), options.client)
        for load in loads(options):
            try:
                for _ in range(options.runs):
                    measured = (program, load, options.seconds, host, port, options.address, options.pid)
                    print(json.dumps(measured_load(*measured)), flush=True)
                if options.rtt:
                    trips = run_round_trips(program, load, 500, host, port, options.address, 200.0)
                    print(json.dumps({"name": f"round trip, {load.name}", **trips}), flush=True)
            except LoadError as error:
                failed = True
                print(json.dumps({"name": load.name, "error": str(error)}), flush=True)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

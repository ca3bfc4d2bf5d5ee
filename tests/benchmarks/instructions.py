"""Instructions that a broker takes for each message, of two checkouts: a machine that is too restless to time
can still count. `python -m tests.benchmarks.instructions before=DIRECTORY now=DIRECTORY` (needs valgrind).

The cases are those of `python -m amqp_broker.conformance.load compare`, as far as they are counted by message
or transaction. Each broker runs under callgrind, which counts from when the case is warm until it is over; in
those over many queues, from when all links are there. A ratio below 1 is less than the first one takes. Two
counts of one checkout differ by less than a hundredth; a broker that is slow gathers more in a group, both
alike, so it is no rate.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from amqp_broker.bench.run import Client, measure
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.conformance.load.__main__ import client_for, tree_of
from amqp_broker.conformance.load.cases import TABLES, Case, Spread
from amqp_broker.conformance.load.contestants import Tree
from amqp_broker.conformance.load.sitting import Sitting
from amqp_broker.testing.broker_process import WITH_BYTECODE

PATIENCE_S: Final = 120.0
RATE: Final = 20.0  # round trips a second: what a broker can do that is fifty times slower
COLLECTED: Final = re.compile(r"Collected\s*:\s*(\d+)")


@contextmanager
def counting(tree: Tree, folder: Path) -> Iterator[tuple[str, int]]:
    """The URL and the process of a broker under callgrind, which does not count yet; it ends with the block,
    and leaves `folder/count`.
    """
    command = [
        "valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=/dev/null",
        f"--log-file={folder}/count", sys.executable, "-m", "amqp_broker", "serve",
        "--listen", "amqp://127.0.0.1:0", "--data", f"{folder}/data",
    ]  # fmt: skip
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=tree.path,
            env=os.environ | WITH_BYTECODE | {"PYTHONHASHSEED": "0"},
        )  # fmt: skip
    assert process.stdout is not None
    with process.stdout as said:
        try:
            line = said.readline()
            if not line.startswith("listening on "):
                raise RuntimeError((folder / "log").read_text()[-2_000:])
            yield line.split()[-1], process.pid
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def switch(pid: int, what: str) -> None:
    """Counting, `on` or `off`."""
    subprocess.run(["callgrind_control", "-i", what, str(pid)], check=True, capture_output=True)


def small(case: Case, part: float) -> tuple[dict[str, Any], int]:
    """What a case changes, and how many messages or transactions of all pairs: seconds of a slow broker."""
    changes = dict(case.changes)
    which, count = "count", 8_000
    if case.rate == "transactions_per_second":
        which, count = "transactions", 400
    elif changes.get("rtt"):
        count = 150
        changes["rate"] = RATE
    elif "half_group" in changes or changes.get("credit", 100) < 100:
        count = 150 * changes.get("credit", 10)
    elif isinstance(case, Spread):
        count = max(count, 10 * case.links)
    elif changes.get("body", 0) > 1_024:
        count = 2_000
    pairs = changes.get("pairs", 1)
    each = max(20, int(count * part) // pairs)
    return changes | {which: each}, each * pairs


def spread(sitting: Sitting, case: Spread, changes: dict[str, Any], pid: int) -> None:
    """Sent and received, one of which is counted."""
    settings, client = case.way(sitting, changes)
    for role in ("sender", "receiver"):
        marks = iter(("on", "off") if role == case.counts else ())

        def mark(marks: Iterator[str] = marks) -> None:
            for what in marks:
                switch(pid, what)
                break

        measure(settings, client, roles=(role,), mark=mark)


def instructions(tree: Tree, case: Case, client: Client, part: float) -> float:
    """For each message or transaction."""
    changes, count = small(case, part)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with counting(tree, folder) as (url, pid):
            host, port = url.removeprefix("amqp://").split(":")
            base = BenchSettings(host=host, port=int(port))
            sitting = Sitting(base, client, pid, ours=True, tree=tree.path)
            case.warm_up(sitting, changes)
            if isinstance(case, Spread):
                spread(sitting, case, changes, pid)
            else:
                switch(pid, "on")
                case.once(sitting, changes)
                switch(pid, "off")
        found = COLLECTED.search((folder / "count").read_text())
        assert found is not None
        return int(found[1]) / count


def main() -> int:
    """Prints a line for each case; 1 where a checkout takes more than the tolerance allows."""
    words = inspect.cleandoc(__doc__ or "")
    parser = argparse.ArgumentParser(
        description=words, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", nargs=2, metavar="[NAME=]TREE", type=tree_of)
    parser.add_argument("--only", default="", help="the cases whose name holds this")
    parser.add_argument("--part", type=float, default=1.0, help="of the usual number of messages")
    parser.add_argument("--tolerance", type=float, default=3.0, help="percent (default %(default)s)")
    options = parser.parse_args()
    first, second = options.trees
    most = 0.0
    print(f"| case | {first.name} | {second.name} | times |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for what, cases in TABLES.items():
            client = client_for("", what, folder)
            for case in cases:
                if type(case) not in (Case, Spread) or options.only not in case.name:
                    continue
                before, now = (instructions(tree, case, client, options.part) for tree in (first, second))
                most = max(most, now / before)
                print(f"| {case.name} | {before:,.0f} | {now:,.0f} | {now / before:.3f} |", flush=True)
    return int(most > 1 + options.tolerance / 100)


if __name__ == "__main__":
    sys.exit(main())

"""Where the time of each shape goes: the broker's processor time for a message or transaction, and whose code
it is spent in. `python -m tests.benchmarks.profiles [NAME=]TREE` (needs perf, of Linux).

The cases are those of `python -m amqp_broker.conformance.load compare`, each measured once while perf samples
the broker, which costs it some percent. `busy` is how many processors the broker had while the case lasted:
with one, it cannot go faster; with less, it waits for the disk or for its clients.
"""

from __future__ import annotations

import argparse
import inspect
import re
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from amqp_broker.conformance.load.__main__ import client_for, tree_of
from amqp_broker.conformance.load.cases import TABLES, Beside, Case, Consumers, Spread

HERTZ: Final = 997
PATIENCE_S: Final = 60.0
CASES: Final = (Case, Beside, Spread, Consumers)
PARTS: Final = {
    "system": r"\[kernel|\[vdso|\[unknown",
    "SQLite": r"sqlite",
    "C library, checksums": r"^(libc|libz|libm|isal_zlib|ld-)",
    "ours and Python": r"",
}
"""By the name of the file that code is in; the first pattern that is found in it counts."""
_SHARE: Final = re.compile(r"^\s*([\d.]+)%\s+(\S.*?)\s*$")


@contextmanager
def sampled(pid: int, file: Path) -> Iterator[None]:
    """The process is sampled as long as the block lasts. Raises RuntimeError where perf cannot."""
    command = ["perf", "record", "-q", "-F", str(HERTZ), "-o", str(file), "-p", str(pid)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=PATIENCE_S)
    if not file.exists():
        raise RuntimeError(f"perf has recorded nothing: {said.strip()[:300]}")


def parts_of(file: Path) -> dict[str, float]:
    """The share of each part, in percent."""
    command = ["perf", "report", "-i", str(file), "--stdio", "--sort", "dso"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
    found: dict[str, float] = defaultdict(float)
    for share, name in filter(None, map(_split, said.splitlines())):
        found[next(part for part, pattern in PARTS.items() if re.search(pattern, name))] += share
    if not found:
        raise RuntimeError(f"perf report says nothing that is understood: {said[:300]}")
    return found


def _split(line: str) -> tuple[float, str] | None:
    found = _SHARE.match(line)
    return None if found is None else (float(found[1]), found[2])


def main() -> int:
    """Prints a line for each case."""
    parser = argparse.ArgumentParser(
        description=inspect.cleandoc(__doc__ or ""), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tree", metavar="[NAME=]TREE", type=tree_of)
    parser.add_argument("--only", default="", help="the cases whose name holds this")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each case (default %(default)s)")
    options = parser.parse_args()
    print(f"| case | us each | busy | {' | '.join(PARTS)} |\n|{'---|' * (3 + len(PARTS))}")
    with tempfile.TemporaryDirectory() as folder:
        for what, cases in TABLES.items():
            client = client_for("", what, folder)
            for case in cases:
                if type(case) not in CASES or options.only not in case.name:
                    continue
                with options.tree.sitting(client, options.seconds) as sitting:
                    changes = case.sized(sitting)
                    case.warm_up(sitting, changes)
                    file = Path(folder) / "samples"
                    with sampled(sitting.pid, file):
                        report = case.once(sitting, changes)
                    parts = parts_of(file)
                    file.unlink()
                each = report["broker_us"]
                count = report.get("discharged") or report["received"] or report["sent"]
                busy = each * count / 1e6 / report["elapsed_s"]
                shares = " | ".join(f"{parts[part]:.0f}%" for part in PARTS)
                print(f"| {case.name} | {each:,.1f} | {busy:.2f} | {shares} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

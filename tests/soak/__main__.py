"""`python -m tests.soak --minutes 60 --seed 1`: everything is used and left at once, and nothing may grow.

Clients of every kind come and go at a set rate, by the project's own client and its frame-level peer;
samples are taken meanwhile of memory, descriptors, threads, the store, latency, and of what lives. The
verdict: over the second half no figure grew (`tests/soak/verdict.py` says by how much it might), no client
met what it did not expect, and when all are gone nothing of them is left. Else the exit status is 1.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.soak.ground import ground_of
from tests.soak.page import page
from tests.soak.run import Soak


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=10.0, help="acts a second, default %(default)s")
    parser.add_argument("--beside-others", action="store_true", help="other work shares the machine")
    parser.add_argument("--page", type=Path, default=Path("soak.html"), help="written, default %(default)s")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory, ground_of(Path(directory)) as ground:
        soak = Soak(ground, options.minutes, options.seed, options.rate, partial(print, flush=True))
        soak.run(options.beside_others)
    print(soak.told())
    for finding in soak.findings:
        print(finding)
    sampler = soak.sampler
    if sampler is not None and len(sampler.times) > 1:
        text = page(soak.told(), sampler.times, sampler.figures, soak.findings, soak.complaints)
        options.page.write_text(text)
        print(f"plots in {options.page}")
    print(f"{len(soak.complaints)} complaints")
    return 0 if soak.good else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the broker ends with it
    sys.exit(main())

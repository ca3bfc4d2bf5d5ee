"""`python -m tests.resumption --cuts 10000 --seed 1`: random cuts of the connection of two programs that
resume their links, one to send and one to receive, and a cut at each octet of a dialogue of four messages.
Nothing may be lost, nothing may come twice: the first violation ends the run, and its exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.resumption.cuts import a_cut_at_each_octet, random_cuts


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.resumption", description=__doc__)
    parser.add_argument("--cuts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first program; those behind it count on")
    parser.add_argument("--step", type=int, default=1, help="octets from one cut of the dialogue to the next")
    options = parser.parse_args()
    begun = time.monotonic()
    cuts = sent = received = 0
    seed = options.seed
    while cuts < options.cuts:
        with TemporaryDirectory(prefix="cuts-") as folder:
            try:
                more, producer, consumer = random_cuts(seed, Path(folder))
            except AssertionError as violation:
                print(f"seed {seed}: {violation}")
                return 1
        cuts, sent, received = cuts + more, sent + producer.resumed, received + consumer.resumed
        seed += 1
    print(
        f"{cuts:,} random cuts of {seed - options.seed} programs in {time.monotonic() - begun:.0f} s: "
        f"{sent:,} deliveries to the broker and {received:,} from it were resumed, 0 lost, 0 twice"
    )
    octets = a_cut_at_each_octet(options.step)
    print(f"{octets:,} cuts of a dialogue, one after each {options.step} octets: 0 lost, 0 twice")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.power_loss --states 1000000 --seed 1 --processes 2`: many simulated power cuts; 0
violations wanted. `--workload sets` stages, seals and commits sets of half messages instead, `topics` posts
to several queues at once, and moves messages to the dead letters, `resumption` keeps outcomes with messages,
`replacing` takes older messages out with those that come.
"""

from __future__ import annotations

import argparse
import os
import random
import sys

from tests.power_loss.many import MAX_VIOLATIONS, run_many
from tests.power_loss.simulation import Setting
from tests.power_loss.workloads import MESSAGES, WORKLOADS


def main() -> int:
    """The command; its exit status is 1 when a violation was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.power_loss", description=__doc__)
    parser.add_argument("--states", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--synchronous", default="FULL", help="NORMAL shows that the proof can fail")
    parser.add_argument(
        "--acknowledge-first", action="store_true", help="a mistake that the proof has to find"
    )
    parser.add_argument(
        "--answer-first", action="store_true", help="another one: what was recovered is not synced"
    )
    parser.add_argument("--workload", choices=[*WORKLOADS], default=MESSAGES)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    setting = Setting(
        options.synchronous, options.acknowledge_first, options.answer_first, workload=options.workload
    )
    total = run_many(options.states, options.seed, options.processes, setting)
    for violation in total.violations[:MAX_VIOLATIONS]:
        print(violation)
    print(
        f"{total.states:,} states at {total.calls:,} calls in {total.seconds:.0f} s "
        f"({total.states / total.seconds:,.0f}/s): {len(total.violations)} violations, seed {options.seed}"
    )
    return 1 if total.violations or not total.states else 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.model --examples 2000`: the state machines for longer than CI has time.

`--machine transactions` is the one with transactions alone, `--machine queues` the one without.
"""

from __future__ import annotations

import argparse
import time

from tests.model import test_model, test_transactions

MACHINES = {"queues": test_model.run, "transactions": test_transactions.run}


def main() -> None:
    """Run and say how long it took; a failure is a traceback with the shortest sequence that was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--examples", type=int, default=2_000, help="sequences of rules to try")
    parser.add_argument("--steps", type=int, default=50, help="rules in each, at most")
    parser.add_argument("--machine", choices=MACHINES, action="append", help="which; all of them by default")
    arguments = parser.parse_args()
    for name in arguments.machine or MACHINES:
        start = time.monotonic()
        MACHINES[name](arguments.examples, arguments.steps)
        seconds = time.monotonic() - start
        tried = f"{arguments.examples} sequences of up to {arguments.steps} rules"
        print(f"{name}: {tried} agree with the model ({seconds:.0f} s)", flush=True)


if __name__ == "__main__":
    main()

"""`python -m tests.model --examples 2000`: the state machine for longer than CI has time."""

from __future__ import annotations

import argparse
import time

from tests.model.test_model import run


def main() -> None:
    """Run and say how long it took; a failure is a traceback with the shortest sequence that was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--examples", type=int, default=2_000, help="sequences of rules to try")
    parser.add_argument("--steps", type=int, default=50, help="rules in each, at most")
    arguments = parser.parse_args()
    start = time.monotonic()
    run(arguments.examples, arguments.steps)
    tried = f"{arguments.examples} sequences of up to {arguments.steps} rules"
    print(f"{tried} agree with the model ({time.monotonic() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()

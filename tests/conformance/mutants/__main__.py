"""Every scenario of the standard against each mutant: `python -m tests.conformance.mutants [NAME ...]`."""

import sys

from amqp_broker.testing import running_broker
from tests.conformance.mutants.hunt import chosen, finders, hunt, scenarios
from tests.conformance.mutants.table import MUTANTS
from tests.conformance.probed import probed


def main(patterns: list[str]) -> int:
    """Prints a line for each; returns 1 where one was not found, or something else was blamed."""
    quick = "--finders" in patterns
    patterns = [pattern for pattern in patterns if pattern != "--finders"]
    wrong = 0
    for mutant in chosen(MUTANTS, patterns):
        with running_broker() as broker:
            settings = probed(broker.url)
            told = hunt(mutant, settings, finders(mutant) if quick else scenarios())
        good = bool(told.found) and not told.blamed
        wrong += not good
        found = ", ".join(result.scenario.id for result in told.found) or "nobody"
        print(f"{'ok   ' if good else 'WRONG'} {mutant.name}: found by {found}", flush=True)
        for result in told.blamed:
            print(f"      blamed by {result.scenario.id}: {result.message[:160]}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

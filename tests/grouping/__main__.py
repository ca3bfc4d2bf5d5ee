"""Long runs of random programs, with progress: `python -m tests.grouping --programs 10000`."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import Counter

from tests.grouping.called_faults import KNOWN, Case, places
from tests.grouping.pairs import KINDS, judge_pair
from tests.grouping.programs import random_program
from tests.grouping.stores import MemoryStores, SqliteStores, Stores, quick_folder
from tests.grouping.verdicts import judge, shrunk


def main() -> int:
    """Run; exit status 1 if a program differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.grouping", description=__doc__)
    parser.add_argument("--programs", type=int, default=1_000, help="how many (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the first program (default 0)")
    parser.add_argument("--store", choices=("memory", "sqlite", "both"), default="both")
    parser.add_argument("--shrink", action="store_true", help="print a smaller program for each that differs")
    parser.add_argument("--stop-after", type=int, default=0, metavar="N", help="stop after N that differ")
    parser.add_argument("--pairs", action="store_true", help="small requests in pairs instead")
    parser.add_argument(
        "--faults", action="store_true", help="a fault in each function that is called for a request"
    )
    options = parser.parse_args()
    folder = quick_folder()
    try:
        if options.pairs:
            return _run_pairs(SqliteStores(folder) if options.store == "sqlite" else MemoryStores())
        if options.faults:
            return _run_faults()
        return _run(options, {"memory": MemoryStores(), "sqlite": SqliteStores(folder)})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run_pairs(stores: Stores) -> int:
    failed = 0
    for first in KINDS:
        for second in KINDS:
            if found := judge_pair(first, second, stores):
                failed += 1
                print(f"{first}; {second}:", *found, sep="\n    ", flush=True)
        print(f"{first}: beside {len(KINDS)} others, {failed} differ so far", file=sys.stderr, flush=True)
    return 1 if failed else 0


def _run_faults() -> int:
    tried = failed = 0
    for kind in KINDS:
        for steps in places(kind):
            case = Case(steps, MemoryStores())
            wrong = {"without a fault": case.prepare()}
            functions = [function for function in case.functions if function not in KNOWN]
            wrong |= {function: case.judge(function) for function in functions}
            wrong = {function: found for function, found in wrong.items() if found}
            failed += len(wrong)
            tried += len(functions)
            asked = f"{kind}, step {len(steps)}"
            print(f"{asked}: {len(functions)} functions, {len(wrong)} wrong", flush=True)
            for function, found in wrong.items():
                print(f"    {function}: {found}", flush=True)
    print(f"{tried} faults, {failed} wrong")
    return 1 if failed else 0


def _run(options: argparse.Namespace, kinds: dict[str, Stores]) -> int:
    begun = told = time.monotonic()
    families: Counter[str] = Counter()
    failed = 0
    for number in range(options.programs):
        seed = options.seed + number
        kind = ("memory", "sqlite")[seed % 2] if options.store == "both" else options.store
        program = random_program(seed)
        if found := judge(program, kinds[kind], seed):
            failed += 1
            families[program.name.split(" ", 1)[1]] += 1
            if options.shrink:
                program = shrunk(program, kinds[kind], seed)
                found = judge(program, kinds[kind], seed)
            print(f"\n{program}\n  on the store {kind}, {found[0]}")
            print("\n".join(f"    {each}" for each in found[1:]), flush=True)
        now = time.monotonic()
        if now - told >= 5 or number + 1 == options.programs:
            told = now
            rate = (number + 1) / (now - begun)
            print(f"{number + 1} programs, {failed} differ, {rate:.1f} a second", file=sys.stderr, flush=True)
        if options.stop_after and failed >= options.stop_after:
            break
    for name, count in families.most_common():
        print(f"{count:5} {name}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.power_loss.io_errors --seed N`: an I/O error or a full disk at the n-th call, n = 1, 2,
...

For each kind of call and each way to fail, the same small plan runs with the n-th call failing, until a run
meets no failure. Each run is a fork of one process that has everything loaded. After each: what was
acknowledged is there, a group that was answered "full" did not happen, one that was answered "failed"
happened wholly or not at all, a store that failed refuses all work, and the next start recovers.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import errno
import os
import pickle
import random
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from amqp_broker.persistence import (
    CreateNode,
    Post,
    Record,
    RowDamaged,
    StoreError,
    StoreFailed,
    StoreFull,
    Unit,
)
from amqp_broker.persistence.sqlite import StoreCorrupt, verify_directory
from tests.power_loss.disk import State, read_state, write_state
from tests.power_loss.plan import Plan, is_refused, make_plan
from tests.power_loss.plan_messages import Messages
from tests.power_loss.recording import Fault, build_library, run_recorded, scratch_directory
from tests.power_loss.simulation import SumsOfFrames
from tests.power_loss.workload import Executor, open_store
from tests.promises.book import Promised, differences
from tests.promises.facts import facts_of

GROUPS: Final = 14
LEFT_OVER: Final = "no run points to it"
"""SQLite tells an error while reading like a damaged page: then the store leaves a segment behind, and loses
nothing.
"""

MAX_CALLS: Final = 5_000
"""A run that never ends cleanly is a fault of this program or of the store."""

ATTEMPTS: Final = 4
"""How often a refused group is offered again: the first refusal may be of all units at once."""

KINDS: Final = (
    ("w", errno.EIO), ("w", errno.ENOSPC), ("t", errno.EIO), ("t", errno.ENOSPC), ("s", errno.EIO),
    ("o", errno.EIO), ("o", errno.ENOSPC), ("u", errno.EIO), ("r", errno.EIO),
)  # fmt: skip


@dataclass(slots=True)
class Told:
    """What a run with a fault told its caller."""

    promised: list[Promised] = field(default_factory=list)
    """What the store may hold now."""

    end: str = ""
    complaints: list[str] = field(default_factory=list)
    failed_call: str = ""


def faults() -> Iterator[Fault]:
    """All ways to fail, each at its first call."""
    for kinds, error in KINDS:
        for sticky in (False, True):
            for torn in (False, True) if kinds == "w" else (False,):
                yield Fault(1, kinds, error, sticky, torn)


class Faults:
    """The fault switch of the preloaded library."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self._arm = library.record_writes_arm
        self._arm.argtypes = [ctypes.c_long, ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_int]
        self._failed = library.record_writes_failed
        self._failed.restype = ctypes.c_char_p

    def arm(self, fault: Fault) -> None:
        self._arm(fault.at, fault.kinds.encode(), fault.errno, fault.sticky, fault.torn)

    def disarm(self) -> str:
        """What failed, "" for nothing."""
        failed: bytes = self._failed()
        self._arm(0, b"", 0, 0, 0)
        return failed.decode()


class _Cut(Exception):
    """The process ends at its first full disk: what was answered so must not have happened."""


class Run:
    """The plan with a fault armed, in the forked process."""

    def __init__(self, directory: Path, plan: Plan, fault: Fault, switch: Faults) -> None:
        self.directory = directory
        self.plan = plan
        self.fault = fault
        self.switch = switch
        self.told = Told()
        before = len(plan.book.pages) - len(plan.groups)
        self.book = plan.book.until(before)
        self.may_hold = [before]
        """Behind which pages of the book the store may be."""
        self.deviates = False
        """Something of the plan did not happen, so that what it has next may not be possible."""
        # Kept to the end of the process: a store that nobody refers to closes its connection, which tidies
        # up.
        self.executor: Executor | None = None

    def carry_out(self) -> Told:
        """Everything up to the end of the plan or the first answer that ends a broker."""
        self.switch.arm(self.fault)
        try:
            executor = self.executor = Executor(open_store(self.directory), self.plan.rests)
        except (StoreError, OSError) as error:
            return self._end(f"did not open: {error}")
        try:
            for number, group in enumerate(self.plan.groups):
                if self.deviates:
                    group = Messages(random.Random(number), self.book.until(len(self.book.pages))).group()
                self._group(executor, group.units)
                if group.rests:
                    self._rest(executor)
        except _Cut:
            return self._end("full, and killed")
        except StoreFailed as error:
            self._end(f"failed: {error}")
            if not isinstance(error, StoreCorrupt):
                self._check_refuses(executor)
            executor.store.close()
            return self.told
        self._end("finished")
        if self.fault.at:
            self._check_goes_on(executor)
            self._promise()
        if self.fault.at % 2:
            executor.store.close()
        return self.told

    def _end(self, words: str) -> Told:
        """From here on the disk is well again."""
        self.told.end = words
        self.told.failed_call = self.switch.disarm()
        self._promise()
        return self.told

    def _promise(self) -> None:
        self.told.promised = [self.book.until(pages).promised() for pages in self.may_hold]

    def _rest(self, executor: Executor) -> None:
        """From here on what is old may be forgotten."""
        self.book.end_group(rests=True)
        self.may_hold = [len(self.book.pages)]
        executor.rest()

    def _group(self, executor: Executor, units: Sequence[Unit]) -> bool:
        """Offer a group until it was committed, some times; False when it was given up and nothing of it
        happened.
        """
        before = len(self.book.pages)
        for _ in range(ATTEMPTS):
            try:
                errors = executor.store.apply(copy.deepcopy(units))
                self._write(units, errors)
                self.may_hold = [before, before + 1]
                executor.store.commit()
            except StoreFull:
                self.book = self.book.until(before)
                self.may_hold = [before]
                self.deviates = True
                if self.fault.at % 2 == 0:
                    raise _Cut from None
                continue
            self.may_hold = [before + 1]
            return not any(isinstance(error, StoreFull) for error in errors)
        return False

    def _write(self, units: Sequence[Unit], errors: Sequence[Exception | None]) -> None:
        for unit, error in zip(units, errors, strict=True):
            if error is None:
                self.book.add(unit)
            elif not is_refused(unit):
                self.deviates = True
                if isinstance(error, RowDamaged) and self.fault.kinds == "r":
                    continue  # a row that could not be read is a damaged one for the store
                if not isinstance(error, StoreFull):
                    self.told.complaints.append(f"a unit was refused with {error!r}")
        self.book.end_group()

    def _check_refuses(self, executor: Executor) -> None:
        """A store that failed takes no more work, although the disk is well again."""
        for name, work in (
            ("apply", lambda: executor.store.apply([[]])),
            ("recover", executor.store.recover),
        ):
            try:
                work()
            except StoreFailed:
                continue
            self.told.complaints.append(f"{name} after a failure was not refused")

    def _check_goes_on(self, executor: Executor) -> None:
        """A store that did not fail takes messages again once there is room."""
        for number in range(ATTEMPTS):
            self._rest(executor)
            if self._group(executor, [[CreateNode(f"room-{number}", "queue")]]):
                (made,) = [n.queue_id for n in self.book.store.recover().nodes if n.name == f"room-{number}"]
                if self._group(executor, [[Post(made, [Record(0, b"there is room", queue_id=made)])]]):
                    return
        self.told.complaints.append("it refuses messages although there is room again")


@dataclass(slots=True)
class Summary:
    """What all runs came to."""

    runs: int = 0
    failures: int = 0
    """Runs that ended with StoreFailed or did not open."""

    complaints: list[str] = field(default_factory=list)


def _forked(root: Path, plan: Plan, fault: Fault, switch: Faults) -> Told:
    """Carry the plan out in a forked process and hear what it was told."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            run = Run(root / "data", plan, fault, switch)
            try:
                told = run.carry_out()
            except BaseException:
                told = run.told
                told.complaints.append(traceback.format_exc())
                told.failed_call = told.failed_call or switch.disarm()
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(told, pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if status or not data:
        return Told([], f"the process ended with {status}", ["it ended without an answer"])
    told = pickle.loads(data)
    assert isinstance(told, Told)
    return told


def _check_afterwards(root: Path, told: Told, fault: Fault) -> list[str]:
    """The next start recovers, and finds what it may find."""
    if not told.promised:
        return told.complaints
    try:
        store = open_store(root / "data")
        try:
            found = facts_of(store)
        finally:
            store.close()
        found_wrong = verify_directory(root / "data")
        if fault.kinds == "r":
            found_wrong = [words for words in found_wrong if LEFT_OVER not in words]
        complaints = [*told.complaints, *found_wrong]
    except (StoreError, AssertionError, OSError) as error:
        return [*told.complaints, f"the next start: {type(error).__name__}: {error}"]
    if all(differences(found, promised) for promised in told.promised):
        complaints.append(f"the next start found: {'; '.join(differences(found, told.promised[-1]))}")
    return complaints


def run_all(root: Path, seed: int, groups: int, *, show: bool = True) -> Summary:
    """Every kind of failure at every call, on an empty directory and on one with something to recover."""
    switch = Faults()
    summary = Summary()
    SumsOfFrames().install()  # each start reads a log that is the last one's but for a few frames
    for name, base, plan in _rounds(root, seed, groups, switch):
        for first in faults():
            started, runs = time.monotonic(), 0
            for at in range(1, MAX_CALLS):
                fault = replace(first, at=at)
                write_state(base, root)
                told = _forked(root, plan, fault, switch)
                runs += 1
                summary.failures += told.end.startswith(("failed", "did not open"))
                for complaint in _check_afterwards(root, told, fault):
                    summary.complaints.append(
                        f"{name}, {fault}: {told.failed_call or 'no call'} failed, {told.end}: {complaint}"
                    )
                if not told.failed_call:
                    break
            else:
                summary.complaints.append(f"{name}, {first}: no clean run in {MAX_CALLS} calls")
            summary.runs += runs
            if show:
                how = f"{first.kinds} {errno.errorcode[first.errno]}"
                how += " sticky" * first.sticky + " torn" * first.torn
                print(
                    f"{name}, {how}: {runs} runs in {time.monotonic() - started:.1f} s",
                    file=sys.stderr,
                    flush=True,
                )
    return summary


def _rounds(root: Path, seed: int, groups: int, switch: Faults) -> Iterator[tuple[str, State, Plan]]:
    yield "empty directory", {}, make_plan(Messages, (seed, "first"), groups)
    write_state({}, root)
    before = make_plan(Messages, (seed, "before"), groups)
    told = _forked(root, before, Fault(0, "", 0), switch)
    assert told.end == "finished" and not told.complaints, told
    plan = make_plan(Messages, (seed, "second"), groups, before.book)
    yield "directory with a WAL", read_state(root), plan


def run_preloaded(seed: int, groups: int) -> tuple[int, str]:
    """`run_all` in a process with the library: its exit status and what it printed."""
    with scratch_directory("io-errors-") as scratch:
        root = Path(scratch) / "root"
        root.mkdir()
        arguments = [
            "-m",
            "tests.power_loss.io_errors",
            "--seed",
            str(seed),
            "--groups",
            str(groups),
            "--root",
            str(root),
        ]
        outcome = run_recorded(build_library(Path(scratch)), arguments, root, timeout=3_600, show_errors=True)
    return outcome.status, outcome.output


def main() -> int:
    """The command; its exit status is 1 when there are complaints."""
    parser = argparse.ArgumentParser(prog="python -m tests.power_loss.io_errors", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--groups", type=int, default=GROUPS, help="commits of each run")
    parser.add_argument(
        "--root", type=Path, help=argparse.SUPPRESS
    )  # given to the process that has the library
    options = parser.parse_args()
    if options.root is None:
        status, output = run_preloaded(options.seed, options.groups)
        print(output, end="")
        return status
    summary = run_all(options.root, options.seed, options.groups)
    for complaint in summary.complaints:
        print(complaint)
    print(
        f"{summary.runs} runs, {summary.failures} of them ended the store, "
        f"{len(summary.complaints)} complaints, seed {options.seed}"
    )
    return 1 if summary.complaints or not summary.failures else 0


if __name__ == "__main__":
    sys.exit(main())

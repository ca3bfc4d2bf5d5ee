"""Record a workload, rebuild what a power cut could leave at each call, open it, and compare.

One run has several sessions: each starts on the disk that a power cut in the one before has left, or on what
its process has left when only that ended, so that recovery is recorded and cut too. Once a restarted store
has answered, what it answered from has to survive. A state is right when it opens, the checker is content,
and it holds exactly what the store held after the last group that was acknowledged before the cut, or after
the one that was on its way.
"""

from __future__ import annotations

import copy
import errno
import pickle
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from amqp_broker.persistence import StoreError, store_file, write_ahead_log
from amqp_broker.persistence.sqlite import verify_directory
from amqp_broker.persistence.sqlite_library import connect
from amqp_broker.persistence.store_file import DATABASE_NAME
from tests.power_loss.disk import Disk, File, State, read_state, write_state
from tests.power_loss.plan import Plan, make_plan
from tests.power_loss.recording import Call, Fault, NotRecorded, read_log, run_recorded
from tests.power_loss.workload import open_store
from tests.power_loss.workloads import MESSAGES, WORKLOADS
from tests.promises.book import Promised, differences
from tests.promises.facts import PAGE, SMALL_PAGE, Facts, facts_of

GROUPS: Final = 40
PAGE_SIZES: Final = (1024, 4096, 8192)
SHARE_WITH_FAULT: Final = 0.15
"""Sessions that meet an I/O error: after a sync that failed nothing more is trusted to be on the disk."""

SHARE_OF_DEATHS: Final = 0.5
"""Sessions that end with the process alone: the next one finds what was not synced, and answers from it."""

SHARE_WITH_CHECKER: Final = 0.25
"""The checker costs as much as opening and reading: it sees this share of the states, and small pages are
read.
"""

SESSIONS: Final = 3
DATA: Final = "data"
"""The store's directory inside the recorded one: it has to make it, and to make its name durable."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is simulated. The defaults are the promise; the others are the faults that the proof must find."""

    synchronous: str = "FULL"
    acknowledge_first: bool = False
    answer_first: bool = False
    bodies_unsynced: bool = False
    groups: int = GROUPS
    sessions: int = SESSIONS
    workload: str = MESSAGES


@dataclass(slots=True)
class Report:
    """What a simulation saw; `violations` are in words, with the place to look at. Of `states` so many were
    `opened`: the others held the same, octet by octet, as one that was opened shortly before.
    """

    states: int = 0
    opened: int = 0
    calls: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        self.states += other.states
        self.opened += other.opened
        self.calls += other.calls
        self.seconds += other.seconds
        self.violations += other.violations

    def tells(self, words: Sequence[str]) -> bool:
        """Whether each of these patterns, of which there are some, is found in a violation."""
        return bool(words) and all(any(re.search(each, told) for told in self.violations) for each in words)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A power cut: the state that it leaves, and what the store may hold in it."""

    place: str
    state: State
    allowed: list[Promised]
    with_checker: bool
    kept: bool


@dataclass(slots=True)
class _Begin:
    """Where a session begins: the disk, what a process finds there, and what the store may hold until it has
    answered for the first time; nothing if a power cut came before it.
    """

    disk: Disk
    state: State
    former: list[Promised]


class SumsOfFrames:
    """The sums of the frames of a log, each computed once: thousands of states have most of their frames in
    common.
    """

    MOST: Final = 8_192

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, object, str], tuple[int, int]] = {}
        self._compute = write_ahead_log._Log.summed

    def install(self) -> None:
        """From now on in this process."""

        def summed(log: Any, number: int, before: tuple[int, int]) -> tuple[int, int]:
            return self._sum(log, number, before)

        write_ahead_log._Log.summed = summed  # type: ignore[assignment, method-assign]

    def _sum(self, log: Any, number: int, before: tuple[int, int]) -> tuple[int, int]:
        at = log.at(number)
        key = (log._data[at : at + log._size], before, log._page.__self__.format)
        if key not in self._known:
            if len(self._known) >= self.MOST:
                self._known.clear()
            self._known[key] = self._compute(log, number, before)
        return self._known[key]


class Opened:
    """What was found in the states that were opened last. A power cut after an answer leaves what one before
    it leaves, and so do many random parts: what the store finds there is the same, what it may find is not.
    """

    MOST: Final = 16

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[tuple[tuple[str, bytes | None], ...], tuple[bool, Facts, str]] = {}
        self.count = 0

    def look(self, state: State, with_checker: bool) -> tuple[Facts, str]:
        """All that the store says of a state, and why it cannot ("" when it can)."""
        same = tuple(state.items())  # mostly the octets of former states, which know their hashes
        known = self._known.pop(same, None)
        if known is None or with_checker > known[0]:
            self.count += 1
            known = (with_checker, *_look(state, self._directory, with_checker))
        self._known[same] = known
        if len(self._known) > self.MOST:
            del self._known[next(iter(self._known))]
        return known[1:]


def simulate(
    library: Path,
    scratch: Path,
    seed: int,
    states: int,
    setting: Setting = Setting(),
    until: Sequence[str] = (),
) -> Report:
    """About `states` states of the run that `seed` makes, in `scratch`, which is cleared; or fewer, as soon
    as each of the patterns `until` is found in a violation.

    A session ends with a power cut, or with the end of its process alone: then the next one starts on what
    that has written, synced or not.
    """
    report = Report()
    opened = Opened(scratch / "state")
    started = time.monotonic()
    begin = _Begin(Disk.of({}), {}, [])
    workload = WORKLOADS[setting.workload]
    plan = make_plan(workload, (seed, 0), setting.groups)
    for session in range(setting.sessions):
        chance = random.Random(f"{seed} {session}")
        arguments = ["--page-size", str(chance.choice(PAGE_SIZES))]
        arguments += ["--close"] if chance.random() < 0.3 else []
        fault = _fault_of(chance) if chance.random() < SHARE_WITH_FAULT else None
        calls = _record(library, scratch, plan, begin.state, setting, arguments, fault)
        report.calls += len(calls)
        following: tuple[_Begin, Promised] | None = None
        wanted = chance.randrange(states // setting.sessions // 2 + 1)
        only_process = setting.answer_first or chance.random() < SHARE_OF_DEATHS
        index = _index_of(begin.state, scratch / "index")
        part = states // setting.sessions
        for cut in _cuts(calls, begin, plan, part, chance, thorough=setting.answer_first):
            matched, complaint = _check(cut, opened)
            report.states += 1
            if complaint:
                report.violations.append(f"seed {seed}, session {session}, {cut.place}: {complaint}")
                if report.tells(until):
                    return report
            elif wanted <= 0 and following is None and matched is not None:
                if not only_process:
                    following = _Begin(Disk.of(cut.state), cut.state, []), matched
                elif cut.kept and matched is not cut.allowed[0]:
                    # A commit that was written, but not synced: the next process finds it, and answers.
                    disk = copy.deepcopy(begin.disk).restarted()
                    following = _Begin(disk, cut.state, cut.allowed), matched
            wanted -= 1
        if following is None:
            break
        begin, found = following
        if begin.former:
            _leave_index(begin, chance.choice((None, index, chance.randbytes(32_768))))
        plan = make_plan(workload, (seed, session + 1), setting.groups, plan.book.until(found.pages))
    report.opened, report.seconds = opened.count, time.monotonic() - started
    return report


def _fault_of(chance: random.Random) -> Fault:
    at, kinds = chance.randrange(1, 150), chance.choice(("w", "s", "ws"))
    return Fault(at, kinds, errno.EIO, torn=chance.random() < 0.5)


def _index_of(state: State, directory: Path) -> bytes | None:
    """The index that a foreign program makes of the log in a state, and may leave behind."""
    write_state(state, directory)
    database = directory / DATA / DATABASE_NAME
    if not database.exists():
        return None
    connection = connect(str(database))
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        index = database.with_name(database.name + "-shm")
        return index.read_bytes() if index.exists() else None
    finally:
        connection.close()


def _leave_index(begin: _Begin, index: bytes | None) -> None:
    """A stale one lies there when the next process starts."""
    path = f"{DATA}/{DATABASE_NAME}-shm"
    if index is not None and DATA in begin.state:
        begin.state = {**begin.state, path: index}
        begin.disk.names[path] = begin.disk.durable_names[path] = File(index)


def _record(
    library: Path,
    scratch: Path,
    plan: Plan,
    base: State,
    setting: Setting,
    options: list[str],
    fault: Fault | None,
) -> list[Call]:
    root, log = scratch / "root", scratch / "log"
    write_state(base, root)
    log.unlink(missing_ok=True)
    task = (plan.groups, plan.rests, plan.book.bound.event_bytes)
    (scratch / "plan").write_bytes(pickle.dumps(task))
    arguments = [
        "-m",
        "tests.power_loss.workload",
        str(root / DATA),
        str(scratch / "plan"),
        str(scratch / "markers"),
    ]
    arguments += ["--synchronous", setting.synchronous]
    arguments += ["--acknowledge-first"] if setting.acknowledge_first else []
    arguments += ["--answer-first"] if setting.answer_first else []
    arguments += ["--bodies-unsynced"] if setting.bodies_unsynced else []
    arguments += options
    outcome = run_recorded(library, arguments, root, log=log, markers=scratch / "markers", fault=fault)
    ends = ("finished", "failed") if outcome.failed_call else ("finished",)
    if outcome.status != 0 or outcome.output.strip() not in ends:
        raise AssertionError(f"the workload ended with {outcome.status}: {outcome.output}{outcome.errors}")
    calls = list(read_log(log))
    disk = Disk.of(base)
    for call in calls:
        disk.replay(call)
    if disk.kept() != read_state(root):
        raise NotRecorded("the replayed directory is not the one that the workload left")
    return calls


def _cuts(
    calls: list[Call], begin: _Begin, plan: Plan, states: int, chance: random.Random, *, thorough: bool
) -> Iterator[_Cut]:
    """At each call: everything lost, everything kept, and random states in between, about `states` in all; if
    they are too few for that, everything kept at some calls only, unless `thorough`.
    """
    places = sum(call.letter != "O" for call in calls)
    share = states / places
    disk = begin.disk
    acknowledged = begun = 0
    answers = not begin.former
    owed = 0.0
    last_lost = None
    place = ""

    def cut(how: str, state: State, kept: bool = False) -> _Cut:
        with_checker = chance.random() < SHARE_WITH_CHECKER
        allowed = plan.promised[acknowledged : begun + 1]
        return _Cut(f"{place}, {how}", state, [*allowed] if answers else begin.former, with_checker, kept)

    for number, call in enumerate(calls):
        changed = disk.replay(call)
        if call.letter == "M":
            word, group = call.data.decode().split()
            if word == "begin":
                begun = int(group) + 1
                continue
            if word == "answers":
                answers = True
            else:
                acknowledged = int(group) + 1
        elif not changed:
            continue
        owed += share
        place = f"call {number} ({call.letter})"
        lost = (disk.syncs, acknowledged, begun, answers)
        if lost != last_lost:
            last_lost = lost
            owed -= 1
            yield cut("what was not synced is lost", disk.lost())
        if thorough or share >= 1 or chance.random() < share:
            owed -= 1
            yield cut("all is kept", disk.kept(), kept=True)
        while owed >= 1:
            owed -= 1
            if disk.has_pending():
                yield cut("a random part is kept", disk.partly(chance))


def _check(cut: _Cut, opened: Opened) -> tuple[Promised | None, str]:
    """The promise that the state keeps, and the complaint about it ("" when it is right)."""
    found, complaint = opened.look(cut.state, cut.with_checker)
    if complaint:
        return None, complaint
    for promised in reversed(cut.allowed):
        told = differences(found, promised)
        if not told:
            return promised, ""
    return None, f"none of the {len(cut.allowed)} states that may be there: {'; '.join(told)}"


def _look(state: State, directory: Path, with_checker: bool) -> tuple[Facts, str]:
    write_state(state, directory)
    try:
        # No power cut follows here, and to sync the names of all folders above takes a tenth of the time.
        with patch.object(store_file, "sync_names", lambda _: None):
            store = open_store(directory / DATA)
        try:
            found = facts_of(store, SMALL_PAGE if with_checker else PAGE)
        finally:
            store.close()
        complaints = verify_directory(directory / DATA) if with_checker else []
    except (StoreError, AssertionError, OSError) as error:
        return {}, f"{type(error).__name__}: {error}"
    return found, f"the checker says: {complaints}" if complaints else ""

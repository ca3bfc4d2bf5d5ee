"""Runs many scenarios, and outlives the broker: it may die, hang or spin, be started again, or stay away.

    parallel   those that have a node of their own, several at a time; one that waits in silence lets another
               begin, up to `OVERLAP` times as many
    alone      those that may choke a broker, one by one

After each scenario a new connection shows whether the broker still serves, and its load is looked at. When
it is in trouble, nothing new begins; what runs ends. The broker is started again, and what ended meanwhile,
which proves nothing, is run again, one by one: the scenario after which the broker is in trouble again has
done it. Without a command that starts it, what is left is not run, and counted as that.

Scenarios run in threads that nobody waits for: one that does not end costs its time, and no more.
"""

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

import attrs

from amqp_broker.conformance.broker import Broker, Settings
from amqp_broker.conformance.outcomes import Verdict
from amqp_broker.conformance.runner import Incident, Report, Result, judge_rows, run_scenario
from amqp_broker.conformance.scenario import Scenario
from amqp_broker.conformance.subject import NOT_AGAIN_S, LoadWatch, State, Subject, Trouble

TIME_LIMIT_S = 110.0
"""Of a whole run of the command, unless somebody says otherwise: with the report below two minutes."""

SCENARIO_LIMIT_S = 40.0
"""Of one scenario: the longest waits about ten seconds, and for each frame a few more."""

ENDS_WITHIN_S = 2.0
"""How long a scenario whose connections were taken away may need to notice."""

OVERLAP = 2
"""How many times ``jobs`` scenarios may run while most of them wait in silence."""

SILENT_AFTER_S = 1.0
"""When a scenario counts as waiting."""

SEEN_LATE_S = 1.0
"""How long before a busy thread was seen a scenario may have ended that keeps it busy."""

LATE_JOBS = 2
"""How many of those may run at a time that were late when more did."""

MAX_RESTARTS = 10
"""A broker that has to be started more often than this does not get through the run."""


class Stop:
    """Whether the run has to end now, and why; a signal's handler may ask."""

    def __init__(self, time_limit_s: float = math.inf) -> None:
        self._deadline = time.monotonic() + time_limit_s
        self._over = f"the time limit of {time_limit_s:g} s was reached"
        self._asked = ""

    def ask(self, why: str) -> None:
        """Ends the run soon."""
        self._asked = self._asked or why

    def __call__(self) -> str:
        """Returns why; empty while it goes on."""
        return self._asked or (self._over if time.monotonic() >= self._deadline else "")


@attrs.define
class Running:
    """A scenario that runs now."""

    scenario: Scenario
    broker: Broker
    begun: float
    interrupted_at: float | None = None


@attrs.frozen
class Ended:
    """A scenario that has ended, and how the broker was after it."""

    result: Result
    state: State


class Survivor:
    """One run of scenarios."""

    def __init__(
        self,
        settings: Settings,
        jobs: int,
        progress: Callable[[Result], None],
        stop: Stop,
        subject: Subject,
        *,
        scenario_limit_s: float = SCENARIO_LIMIT_S,
    ) -> None:
        self._settings, self._jobs, self._progress = settings, jobs, progress
        self._stop, self._subject, self._limit_s = stop, subject, scenario_limit_s
        self._ended: SimpleQueue[Ended] = SimpleQueue()
        self._running: dict[str, Running] = {}
        self._restarts = 0
        self._gone = ""
        self._spins_already = False
        self._watch = LoadWatch(subject.program)
        self._told_at: dict[str, float] = {}
        self._attempts: Counter[str] = Counter()
        self._first: dict[str, Result] = {}
        """What a clock has decided, which is run again: its first result."""
        self.results: dict[str, Result] = {}
        self.incidents: list[Incident] = []

    def run(self, scenarios: Sequence[Scenario]) -> None:
        """Runs all of them; each has a result in the end."""
        together = [one for one in scenarios if not one.alone]
        self._run_parallel(deque(sorted(together, key=lambda one: not one.waits)))
        for one in scenarios:
            if one.alone and not self._over():
                self._run_alone(one)
        self._run_late()
        for one in scenarios:
            if one.id not in self.results:
                # What was to be run again has a result all the same.
                self._tell(self._first.get(one.id) or Result(one, Verdict.NOT_RUN, 0.0, self._over()))

    def _over(self) -> str:
        """Why nothing more begins; empty while it does."""
        return self._gone or self._stop()

    def _tell(self, result: Result) -> None:
        self.results[result.scenario.id] = result
        self._progress(result)

    def _tell_or_put_off(self, result: Result) -> None:
        """A clock is a witness, and no judge while much else is going on."""
        name = result.scenario.id
        if result.late and self._attempts[name] == 1:
            self._first[name] = result
            return
        if name in self._first and result.verdict is Verdict.NOT_RUN:
            result = self._first[name]  # it was cut short when it was run again
        if name in self._first and result.verdict is Verdict.PASSED:
            result = attrs.evolve(result, message=f"late at first, with others: {self._first[name].message}")
        self._tell(result)

    def _run_late(self) -> None:
        """Runs again, with little beside it, what a clock has decided; the second verdict counts."""
        late = [result.scenario for name, result in self._first.items() if name not in self.results]
        if late:
            self._jobs = min(self._jobs, LATE_JOBS)
            self._run_parallel(deque(late))

    # ---- one scenario in its thread ------------------------------------------------------------------------

    def _begin(self, scenario: Scenario) -> None:
        self._attempts[scenario.id] += 1
        again = self._attempts[scenario.id] - 1
        settings = self._settings
        if again:  # queues of its own, since the first attempt has left something in its queues
            settings = attrs.evolve(settings, run_id=f"{settings.run_id}-{again}")
        broker = Broker(settings, scenario.id)
        program = self._subject.program
        self._running[scenario.id] = Running(scenario, broker, time.monotonic())

        def run() -> None:
            result = run_scenario(scenario, settings, broker)
            state = State()
            if not self._stop():
                state = self._subject.look()
                if state.trouble is None and program.has_ended:
                    state = State(Trouble.DIED, f"its process {program.pid} ended, and another one listens")
            self._ended.put(Ended(result, state))

        threading.Thread(target=run, name=f"scenario {scenario.id}", daemon=True).start()

    def _next_ended(self) -> Ended | None:
        """What has ended, or had to be ended, within a moment."""
        try:
            ended = self._ended.get(timeout=0.05)
        except Empty:
            return self._overdue()
        return ended if self._running.pop(ended.result.scenario.id, None) else None

    def _overdue(self) -> Ended | None:
        """Takes the connections away from what runs for too long; gives up what does not notice it."""
        now = time.monotonic()
        stopped = self._stop()
        for one in self._running.values():
            if one.interrupted_at is None and (stopped or now - one.begun > self._limit_s):
                one.interrupted_at = now
                one.broker.interrupt(stopped or f"it had not ended after {self._limit_s:g} s")
            if one.interrupted_at is not None and now - one.interrupted_at > ENDS_WITHIN_S:
                del self._running[one.scenario.id]
                lines = tuple(one.broker.transcript.text())
                return Ended(
                    Result(one.scenario, Verdict.FAILED, now - one.begun, one.broker.interrupted, lines),
                    State(),
                )
        return None

    def _judged(self, result: Result) -> Result:
        """What was cut short with the whole run has not been run."""
        if result.verdict is Verdict.FAILED and result.message == self._stop():
            return attrs.evolve(result, verdict=Verdict.NOT_RUN)
        return result

    # ---- several at a time ---------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        if self._jobs == 1 or len(self._running) >= self._jobs * OVERLAP:
            return len(self._running) < self._jobs
        busy = [one for one in self._running.values() if one.broker.transcript.quiet_s() < SILENT_AFTER_S]
        return len(busy) < self._jobs

    def _run_parallel(self, waiting: deque[Scenario]) -> None:
        trouble: State | None = None
        doubtful: list[Result] = []  # what ended since the broker was seen in trouble
        self._watch = LoadWatch(self._subject.program)
        while (waiting and not self._over()) or self._running:
            while waiting and trouble is None and not self._over() and self._has_room():
                self._begin(waiting.popleft())
            ended = self._next_ended()
            if ended is not None:
                trouble = ended.state if ended.state.trouble is not None else trouble
                if trouble is None:
                    self._tell_or_put_off(self._judged(ended.result))
                    self._told_at[ended.result.scenario.id] = time.monotonic()
                else:
                    doubtful.append(self._judged(ended.result))
            self._watch.look()
            if trouble is None and not self._spins_already and self._watch.is_suspicious():
                trouble = State(Trouble.SPINS)
            if trouble is not None and not self._running:
                self._recover(trouble, doubtful)
                trouble, doubtful = None, []
        if not self._over() and not self._spins_already:
            self._recover(State(Trouble.SPINS), [])

    def _recover(self, suspicion: State, doubtful: list[Result]) -> None:
        """Sees what the trouble is while nothing runs, brings the broker back, and finds who did it."""
        state = self._subject.look_patiently(self._stop)
        if state.trouble is None and suspicion.trouble in (Trouble.HANGS, Trouble.CLOSED):
            # It was busy: what passed, passed.
            for result in [each for each in doubtful if each.verdict is not Verdict.FAILED]:
                self._tell(result)
                doubtful.remove(result)
        suspects = [one.scenario for one in doubtful]
        if state.trouble is None and suspicion.trouble is Trouble.SPINS:
            state = self._subject.spins(self._stop)
            since = self._watch.busy_since - SEEN_LATE_S
            recent = [name for name, at in self._told_at.items() if at >= since]
            suspects += [(self.results.get(name) or self._first[name]).scenario for name in recent]
        if state.trouble is not None:
            after = self._bring_back(state)
        elif suspicion.trouble is Trouble.DIED:
            state, after = suspicion, "it came back by itself"
        before = len(self.incidents)
        if not self._spins_already and (doubtful or state.trouble is not None):
            for one in suspects:
                if not self._over():
                    self._run_alone(one)
        if state.trouble is not None and len(self.incidents) == before:
            names = tuple(one.id for one in suspects)
            self.incidents.append(Incident(state.trouble.value, state.detail, names, False, after))
        for result in doubtful:
            if result.scenario.id not in self.results:
                self._tell(self._suspected(result, state, alone=len(suspects) == 1))
        self._watch = LoadWatch(self._subject.program, time.monotonic() + NOT_AGAIN_S)

    def _suspected(self, result: Result, state: State, *, alone: bool) -> Result:
        """What failed while the broker got into trouble, and could not be run again.

        Where others failed as well, it shows nothing.
        """
        if state.trouble is None or self._spins_already or result.verdict is not Verdict.FAILED:
            return result
        message = f"while it ran the broker {state.trouble.value}: {state.detail} (in it: {result.message})"
        verdict = Verdict.FAILED if alone else Verdict.NOT_RUN
        return attrs.evolve(result, verdict=verdict, message=message)

    # ---- one by one ----------------------------------------------------------------------------------------

    def _run_alone(self, scenario: Scenario) -> None:
        """Runs one, and sees what it did to the broker."""
        self._begin(scenario)
        ended = None
        while ended is None:
            ended = self._next_ended()
        result = self._judged(ended.result)
        state = self._after(ended.state)
        if state.trouble is None:
            self._tell_or_put_off(result)
            if scenario.id not in self.results and not self._over():
                self._run_alone(scenario)
            return
        serves = state.trouble is Trouble.DIED and self._subject.look().trouble is None
        after = "it came back by itself" if serves else self._bring_back(state)
        self.incidents.append(Incident(state.trouble.value, state.detail, (scenario.id,), True, after))
        message = f"after it the broker {state.trouble.value}: {state.detail}"
        if result.message:
            message += f" (in it: {result.message})"
        self._tell(attrs.evolve(result, verdict=Verdict.FAILED, message=message))

    def _after(self, seen: State) -> State:
        """How the broker is after a scenario that ran alone."""
        if seen.trouble is None:
            return State() if self._spins_already else self._subject.spins(self._stop)
        state = self._subject.look_patiently(self._stop)
        if state.trouble is None and seen.trouble is Trouble.DIED:
            return seen  # no pause explains that nobody listened
        return state

    def _bring_back(self, state: State) -> str:
        """Starts the broker again where that is possible; returns what was done."""
        assert state.trouble is not None
        if not self._subject.can_restart:
            wrong = "no command was given that starts it again (--restart)"
        elif self._restarts >= MAX_RESTARTS:
            wrong = f"it was started again {MAX_RESTARTS} times, and not once more"
        elif stopped := self._stop():
            wrong = stopped
        else:
            self._restarts += 1
            failure = self._subject.restart(self._stop)
            if not failure:
                self._spins_already = False
                return "it was started again"
            wrong = f"it could not be started again: {failure}"
        if state.trouble is Trouble.SPINS and self._subject.look().trouble is None:
            self._spins_already = True
            return f"the rest was run all the same; {wrong}"
        self._gone = f"the broker {state.trouble.value}, and {wrong}"
        return f"the rest was not run; {wrong}"


def run(
    scenarios: Sequence[Scenario],
    settings: Settings,
    profile: str,
    jobs: int,
    progress: Callable[[Result], None],
    *,
    stop: Stop | None = None,
    subject: Subject | None = None,
    title: str = "",
) -> Report:
    """Runs ``scenarios`` against the broker of ``settings`` (probed before) and returns the report."""
    begun = time.monotonic()
    survivor = Survivor(settings, jobs, progress, stop or Stop(), subject or Subject(settings))
    survivor.run(scenarios)
    results = tuple(survivor.results[one.id] for one in scenarios)
    return Report(
        settings, settings.findings, profile, results, tuple(judge_rows(results)), time.monotonic() - begun,
        tuple(survivor.incidents), title,
    )  # fmt: skip

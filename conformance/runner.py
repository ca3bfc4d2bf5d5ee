"""Runs scenarios in threads against one broker, and gathers what they showed."""

import time
import traceback
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import attrs

from amqp_broker.conformance.broker import Broker, Findings, Settings
from amqp_broker.conformance.dialogue_rules import Breach
from amqp_broker.conformance.dialogue_state import CLIENT, SERVER
from amqp_broker.conformance.outcomes import CannotConnect, NotApplicable, Unexpected, Verdict
from amqp_broker.conformance.requirements import Requirement, load_requirements
from amqp_broker.conformance.scenario import Scenario, shown_by

OUR_FAULT = "this suite's own fault, it breaks "
"""What the reason of a scenario begins with whose peer broke a rule that it did not mean to break."""


@attrs.frozen
class Result:
    """What one scenario showed."""

    scenario: Scenario
    verdict: Verdict
    seconds: float
    message: str = ""
    transcript: tuple[str, ...] = ()
    breaches: tuple[Breach, ...] = ()
    """Rules that the broker broke by the way: the scenario is about others."""


@attrs.frozen
class Row:
    """What a run says of one requirement: passed, failed, admitted, skipped, unseen (with its reason) or
    left out.
    """

    requirement: Requirement
    status: str
    scenarios: tuple[str, ...] = ()
    reason: str = ""


@attrs.frozen
class Report:
    """Everything that one run found."""

    settings: Settings
    findings: Findings
    profile: str
    results: tuple[Result, ...]
    rows: tuple[Row, ...]
    seconds: float

    def count(self, verdict: Verdict) -> int:
        """Returns how many scenarios ended so."""
        return sum(result.verdict is verdict for result in self.results)

    def count_rows(self, status: str) -> int:
        """Returns how many requirements have this status."""
        return sum(row.status == status for row in self.rows)


def run_scenario(scenario: Scenario, settings: Settings) -> Result:
    """Runs one scenario; whatever it raises becomes its verdict."""
    broker = Broker(settings, scenario.id)
    begun = time.monotonic()
    verdict, message = Verdict.PASSED, ""
    try:
        if scenario.transactional:
            broker.require_coordinator()
        if scenario.protocol:
            broker.require_protocol(scenario.protocol)
        scenario.body(broker)
        broker.finish()
    except NotApplicable as reason:
        verdict, message = Verdict.SKIPPED, str(reason)
    except (Unexpected, CannotConnect) as error:
        verdict, message = Verdict.FAILED, str(error)
    except Exception as error:
        # Anything else is the scenario's own fault, or octets of the broker that cannot be decoded; both are
        # shown.
        where = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error} ({where.filename.rsplit('/', 1)[-1]}:{where.lineno})"
        verdict = Verdict.FAILED
    finally:
        broker.discard()
    verdict, message = _held_against_the_rules(scenario, broker, verdict, message)
    if scenario.id in settings.gaps and verdict is not Verdict.SKIPPED:
        if verdict is Verdict.PASSED:
            verdict, message = Verdict.FAILED, "it passes, though it is listed as a gap: take it off the list"
        else:
            verdict, message = Verdict.ADMITTED, f"{settings.gaps[scenario.id]} ({message})"
    seconds = time.monotonic() - begun
    by_the_way = tuple(one for one in broker.breaches(SERVER) if one.rule not in scenario.rows)
    return Result(scenario, verdict, seconds, message, tuple(broker.transcript.text()), by_the_way)


def _held_against_the_rules(
    scenario: Scenario, broker: Broker, verdict: Verdict, message: str
) -> tuple[Verdict, str]:
    """The verdict when the frames of both sides were judged: a rule that the scenario names, broken by the
    broker, fails it; a rule that our own peer broke by mistake makes it prove nothing.
    """
    for breach in broker.breaches(CLIENT):
        if breach.rule not in scenario.breaks:
            return Verdict.SKIPPED, f"{OUR_FAULT}{breach}"
    for breach in broker.breaches(SERVER):
        if breach.rule in scenario.rows:
            return Verdict.FAILED, str(breach)
    return verdict, message


def run_scenarios(
    scenarios: list[Scenario], settings: Settings, jobs: int, progress: Callable[[Result], None]
) -> list[Result]:
    """Runs ``scenarios``, ``jobs`` at a time and those that wait first; calls ``progress`` as each one
    ends.
    """
    results: dict[str, Result] = {}
    with ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="scenario") as pool:
        ordered = sorted((one for one in scenarios if not one.alone), key=lambda one: not one.waits)
        pending: set[Future[Result]] = {pool.submit(run_scenario, one, settings) for one in ordered}
        try:
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    result = future.result()
                    results[result.scenario.id] = result
                    progress(result)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for one in scenarios:
        if one.alone:
            results[one.id] = run_scenario(one, settings)
            progress(results[one.id])
    return [results[one.id] for one in scenarios]


def judge_rows(results: list[Result]) -> list[Row]:
    """Returns one row for each requirement of the standard, judged by the scenarios that ran; with a protocol
    of `PROTOCOLS` among them one for each of its sentences, and without the standard's where nothing else
    ran.
    """
    protocols = {result.scenario.protocol for result in results} or {""}
    shown = shown_by()
    verdicts = {result.scenario.id: result for result in results}
    rows = []
    for requirement in load_requirements().values():
        if requirement.protocol not in protocols:
            continue
        names = shown.get(requirement.id, [])
        ran = [verdicts[name] for name in names if name in verdicts]
        if not names:
            rows.append(Row(requirement, "unseen", (), requirement.reason))
        elif any(result.verdict is Verdict.FAILED for result in ran):
            rows.append(Row(requirement, "failed", tuple(names)))
        elif any(result.verdict is Verdict.ADMITTED for result in ran):
            reason = "; ".join(result.message for result in ran if result.verdict is Verdict.ADMITTED)
            rows.append(Row(requirement, "admitted", tuple(names), reason))
        elif any(result.verdict is Verdict.PASSED for result in ran):
            rows.append(Row(requirement, "passed", tuple(names)))
        elif ran:
            reason = "; ".join(dict.fromkeys(result.message for result in ran))
            rows.append(Row(requirement, "skipped", tuple(names), reason))
        else:
            rows.append(
                Row(requirement, "left out", tuple(names), "its scenarios were not selected for this run")
            )
    return rows


def run(
    scenarios: list[Scenario], settings: Settings, profile: str, jobs: int, progress: Callable[[Result], None]
) -> Report:
    """Runs ``scenarios`` against the broker of ``settings`` (probed before) and returns the report."""
    begun = time.monotonic()
    results = run_scenarios(scenarios, settings, jobs, progress)
    seconds = time.monotonic() - begun
    return Report(settings, settings.findings, profile, tuple(results), tuple(judge_rows(results)), seconds)

"""Runs scenarios against one broker, and gathers what they showed; how they are scheduled, and what becomes
of a run whose broker dies, is in `survival`.
"""

import time
import traceback
from collections.abc import Sequence

import attrs

from amqp_broker.conformance.broker import Broker, Findings, Settings
from amqp_broker.conformance.dialogue_rules import Breach
from amqp_broker.conformance.dialogue_state import CLIENT, SERVER
from amqp_broker.conformance.outcomes import (
    CannotConnect,
    Interrupted,
    Late,
    NotApplicable,
    Unexpected,
    Verdict,
)
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

    late: bool = False
    """Whether a clock has decided, and the machine may have been too busy."""


@attrs.frozen
class Incident:
    """A finding about the broker as a whole: it died, hung, spun or let nobody in."""

    trouble: str
    detail: str
    scenarios: tuple[str, ...]
    """What did it: one scenario where that is proven, else those that may have."""

    proven: bool
    after: str
    """How it went on: the broker was started again, or came back by itself, or nothing more was run."""


@attrs.frozen
class Row:
    """What a run says of one requirement: passed, failed, admitted, skipped, unseen (with its reason), not
    run or left out.
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
    incidents: tuple[Incident, ...] = ()
    title: str = ""
    """What the broker is called in its description."""

    def count(self, verdict: Verdict) -> int:
        """Returns how many scenarios ended so."""
        return sum(result.verdict is verdict for result in self.results)

    def count_rows(self, status: str, strength: str = "") -> int:
        """Returns how many requirements have this status: all of them, or those of a strength."""
        return sum(row.status == status and strength in ("", row.requirement.strength) for row in self.rows)


def run_scenario(scenario: Scenario, settings: Settings, broker: Broker | None = None) -> Result:
    """Runs one scenario; whatever it raises becomes its verdict."""
    broker = broker or Broker(settings, scenario.id)
    begun = time.monotonic()
    verdict, message, late = Verdict.PASSED, "", False
    try:
        _require_all_of(scenario, broker)
        scenario.body(broker)
        broker.finish()
    except NotApplicable as reason:
        verdict, message, late = Verdict.SKIPPED, str(reason), isinstance(reason.__cause__, Late)
    except (Unexpected, CannotConnect, Interrupted) as error:
        verdict, message, late = Verdict.FAILED, str(error), isinstance(error, Late)
    except Exception as error:
        # Anything else is the scenario's own fault, or octets of the broker that cannot be decoded; both are
        # shown.
        where = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error} ({where.filename.rsplit('/', 1)[-1]}:{where.lineno})"
        verdict = Verdict.FAILED
    finally:
        broker.discard()
    interrupted = broker.interrupted and verdict is Verdict.FAILED
    if interrupted:
        message = broker.interrupted  # whatever the end of its connections looked like to it
    else:
        verdict, message = _held_against_the_rules(scenario, broker, verdict, message)
    by_the_way = _by_the_way(scenario, broker)
    seconds, lines = time.monotonic() - begun, tuple(broker.transcript.text())
    result = Result(scenario, verdict, seconds, message, lines, by_the_way, late and not interrupted)
    return result if interrupted else _admitted(result, settings)


def _by_the_way(scenario: Scenario, broker: Broker) -> tuple[Breach, ...]:
    """What the broker broke that the scenario is not about, where our own peer has kept all rules."""
    if broker.breaches(CLIENT):
        return ()
    return tuple(one for one in broker.breaches(SERVER) if one.rule not in scenario.rows)


def _held_against_the_rules(
    scenario: Scenario, broker: Broker, verdict: Verdict, message: str
) -> tuple[Verdict, str]:
    """The verdict when the frames of both sides were judged: a rule that the scenario names, broken by the
    broker, fails it; a rule that our own peer broke by mistake makes it prove nothing.
    """
    for breach in broker.breaches(CLIENT):
        if breach.rule == "3.5.3-outcomes" and breach.rule not in scenario.breaks:
            return Verdict.SKIPPED, f"the broker does not offer it: {breach.text}"
        if breach.rule not in scenario.breaks:
            return Verdict.SKIPPED, f"{OUR_FAULT}{breach}"
    for breach in broker.breaches(SERVER):
        if breach.rule in scenario.rows:
            return Verdict.FAILED, str(breach)
    return verdict, message


def _require_all_of(scenario: Scenario, broker: Broker) -> None:
    """Ends the scenario as not applicable where the broker does not have what it is about."""
    for pattern, reason in broker.settings.lacks.items():
        if scenario.is_called(pattern):
            raise NotApplicable(reason)
    if scenario.transactional:
        broker.require_coordinator()
    if scenario.protocol:
        broker.require_protocol(scenario.protocol)


def _admitted(result: Result, settings: Settings) -> Result:
    """Returns what becomes of a result by the list of known gaps."""
    reason = settings.gaps.get(result.scenario.id)
    if reason is None or result.verdict not in (Verdict.PASSED, Verdict.FAILED):
        return result
    if result.verdict is Verdict.PASSED:
        message = "it passes, though it is listed as a gap: take it off the list"
        return attrs.evolve(result, verdict=Verdict.FAILED, message=message)
    return attrs.evolve(result, verdict=Verdict.ADMITTED, message=f"{reason} ({result.message})")


def judge_rows(results: Sequence[Result]) -> list[Row]:
    """Returns one row for each requirement of the standard, judged by the scenarios that ran; with a protocol
    of `PROTOCOLS` among them one for each of its sentences, and without the standard's where nothing else
    ran. A rule that was broken by the way is a row that failed, whoever was about something else.
    """
    broken = {each.rule: (result, each) for result in reversed(results) for each in result.breaches}
    protocols = {result.scenario.protocol for result in results} or {""}
    shown = shown_by()
    verdicts = {result.scenario.id: result for result in results}
    rows = []
    for requirement in load_requirements().values():
        if requirement.protocol not in protocols:
            continue
        names = shown.get(requirement.id, [])
        ran = [verdicts[name] for name in names if name in verdicts]
        if requirement.id in broken:
            result, breach = broken[requirement.id]
            rows.append(Row(requirement, "failed", tuple(names), f"in {result.scenario.id}: {breach.text}"))
        elif not names:
            rows.append(Row(requirement, "unseen", (), requirement.reason))
        elif any(result.verdict is Verdict.FAILED for result in ran):
            rows.append(Row(requirement, "failed", tuple(names)))
        elif any(result.verdict is Verdict.ADMITTED for result in ran):
            reason = "; ".join(result.message for result in ran if result.verdict is Verdict.ADMITTED)
            rows.append(Row(requirement, "admitted", tuple(names), reason))
        elif any(result.verdict is Verdict.NOT_RUN for result in ran):
            reason = "; ".join(
                dict.fromkeys(result.message for result in ran if result.verdict is Verdict.NOT_RUN)
            )
            rows.append(Row(requirement, "not run", tuple(names), reason))
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

"""Every scenario against this project's broker: with its defaults, and with logins and small limits.

A scenario passes, is an admitted gap of the conformance statement, or has nothing to show on this broker.
"""

from pathlib import Path
from typing import Final

import attrs
import pytest

from amqp_broker.configuration import load_configuration
from amqp_broker.conformance.gaps import load_gaps
from amqp_broker.conformance.outcomes import Verdict
from amqp_broker.conformance.runner import OUR_FAULT, Report
from amqp_broker.conformance.scenario import load_scenarios
from amqp_broker.conformance.survival import run
from amqp_broker.testing import running_broker
from tests.conformance.probed import probed

ROOT = Path(__file__).resolve().parents[3]
GAPS = load_gaps(ROOT / "conformance" / "admitted_gaps.toml")

TWO_RUNS_S: Final = 1_200
"""Half a minute each where nobody else wants the machine."""
BY_CHANCE_SHOWN = {"2.5.6/overrun"}
"""Scenarios that may have nothing to show on either broker: our window moves as transfers arrive, unless so
many come in one read that it is overrun.
"""


def _run(url: str, **changes: str) -> Report:
    settings = probed(url, run_id="ci", gaps=GAPS, **changes)
    return run(load_scenarios(), settings, "full", 8, lambda result: None)


def _default_run() -> Report:
    """A run against a broker in memory with its defaults."""
    with running_broker() as broker:
        return _run(broker.url)


def _second_run() -> Report:
    """A run against a broker with logins, strict queues, small windows and a short idle time-out."""
    config = load_configuration(ROOT / "conformance" / "second_broker.toml")
    with running_broker(attrs.evolve(config, memory=True)) as broker:
        url = broker.url.replace("amqp://", "amqp://conformance:conformance-password@")
        return _run(url, address_prefix="made.", unknown_address="nowhere")


def _failures(report: Report) -> list[str]:
    return [
        "\n".join([f"{result.scenario.id}: {result.message}", *result.transcript[-12:]])
        for result in report.results
        if result.verdict in (Verdict.FAILED, Verdict.NOT_RUN)
    ] + [str(incident) for incident in report.incidents]


def _breaches(report: Report) -> list[str]:
    """What either side's frames broke that no scenario names: by mistake, or by the way."""
    return [
        f"{result.scenario.id}: {told}"
        for result in report.results
        for told in [
            *map(str, result.breaches),
            *([result.message] if result.message.startswith(OUR_FAULT) else []),
        ]
    ]


@pytest.mark.timeout(TWO_RUNS_S)
def test_our_broker() -> None:
    """No scenario fails against either broker, and what has nothing to show on one shows it on the other. Our
    own frames keep every rule but those that a scenario says it breaks; the broker's keep all.

    One test, as each worker of the tests would make both runs for its share of several.
    """
    default, second = _default_run(), _second_run()
    assert "\n\n".join([*_failures(default), *_failures(second)]) == ""
    assert [*_breaches(default), *_breaches(second)] == []
    skipped = [
        {result.scenario.id for result in report.results if result.verdict is Verdict.SKIPPED}
        for report in (default, second)
    ]
    assert (skipped[0] & skipped[1]) - BY_CHANCE_SHOWN == set()

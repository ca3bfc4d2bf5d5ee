"""Single conformance scenarios against our broker, as suites of seeded faults.

Not collected with the other tests: tests/conformance/whole runs all of them. Here each is a test
of its own, so that one can be named: `pytest "tests/mutants/scenario_suite.py::test_scenario[4.3/over]"`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.configuration import BrokerConfig, load_configuration
from amqp_broker.conformance.broker import Settings, endpoint_of, probe
from amqp_broker.conformance.outcomes import Verdict
from amqp_broker.conformance.runner import Result, run_scenario
from amqp_broker.conformance.scenario import Scenario, load_scenarios
from amqp_broker.testing import memory_config, running_broker

SECOND_BROKER = Path(__file__).resolve().parents[2] / "conformance" / "second_broker.toml"


def _run(scenario: Scenario, config: BrokerConfig, **changes: Any) -> Result:
    with running_broker(attrs.evolve(config, memory=True)) as broker:
        login = "amqp://conformance:conformance-password@" if config.users else "amqp://"
        address = endpoint_of(broker.url.replace("amqp://", login))
        settings = Settings(address, run_id="mutant", **changes)
        return run_scenario(scenario, attrs.evolve(settings, findings=probe(settings)))


@pytest.mark.parametrize("scenario", load_scenarios(), ids=lambda scenario: scenario.id)
def test_scenario(scenario: Scenario) -> None:
    """Passes with the defaults; what has nothing to show there passes on the second broker."""
    result = _run(scenario, memory_config())
    if result.verdict is Verdict.SKIPPED:
        config = load_configuration(SECOND_BROKER)
        result = _run(scenario, config, address_prefix="made.", unknown_address="nowhere")
    assert result.verdict is Verdict.PASSED, "\n".join([result.message, *result.transcript[-12:]])

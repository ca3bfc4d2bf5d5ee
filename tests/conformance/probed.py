"""A broker as the scenarios of a run see it: what it can do was found out before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs

from amqp_broker.conformance.broker import Broker, Settings, endpoint_of, probe
from amqp_broker.conformance.outcomes import Verdict
from amqp_broker.conformance.runner import run_scenario
from amqp_broker.conformance.scenario import select_scenarios


def probed(url: str, **changes: Any) -> Settings:
    """The settings of a run against a broker, with what a probe has found out."""
    settings = Settings(endpoint_of(url), **{"run_id": "t", **changes})
    return attrs.evolve(settings, findings=probe(settings))


@contextmanager
def scenario_broker(settings: Settings, name: str = "helpers") -> Iterator[Broker]:
    """What a scenario of this name gets. It is discarded in the end."""
    broker = Broker(settings, name)
    try:
        yield broker
    finally:
        broker.discard()


def message_of_skipped(settings: Settings, profile: str, scenario_id: str) -> str:
    """Run a scenario, which must be skipped. Gives the reason."""
    result = run_scenario(select_scenarios(profile, [scenario_id])[0], settings)
    assert result.verdict is Verdict.SKIPPED
    return result.message

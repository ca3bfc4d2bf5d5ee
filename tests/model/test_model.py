"""The broker against the model, within what CI has time for; `python -m tests.model` goes on for longer."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import BrokerMachine

EXAMPLES = int(os.environ.get("AMQP_BROKER_MODEL_EXAMPLES", "60"))
STEPS = int(os.environ.get("AMQP_BROKER_MODEL_STEPS", "30"))


def test_the_broker_does_what_the_model_says() -> None:
    """Random clients and controllers, faults and restarts: order, headers, counts, credit and drains are as
    it says; what commits is there wholly, what does not never was.
    """
    run(EXAMPLES, STEPS)


def run(examples: int, steps: int) -> None:
    """Try `examples` sequences of at most `steps` rules."""
    BrokerMachine.failed_at_end.clear()
    run_state_machine_as_test(
        BrokerMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
    assert BrokerMachine.failed_at_end == []

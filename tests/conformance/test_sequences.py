"""The scenarios of sequenced streams, against brokers without them; and what their helpers tell."""

import attrs
import pytest

from amqp_broker.configuration import QueuePolicy
from amqp_broker.conformance.broker import Address, Broker, Settings, probe
from amqp_broker.conformance.dialogue import Sender
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, Verdict
from amqp_broker.conformance.runner import run_scenario
from amqp_broker.conformance.scenario import select_scenarios
from amqp_broker.conformance.sequences import (
    expect_equal,
    expect_told,
    other_principal,
    placed,
    refusal_of_link,
    standing,
    stream_sender,
    words,
)
from amqp_broker.frames import Accepted, Rejected, Released
from amqp_broker.testing import memory_config, running_broker


def test_a_broker_without_sequences_is_found_out() -> None:
    """Its scenarios are skipped with the reason."""
    config = memory_config(queue_policies=(QueuePolicy(pattern="**", sequence="off"),))
    with running_broker(config) as broker:
        settings = Settings(Address.parse(broker.url), run_id="off")
        settings = attrs.evolve(settings, findings=probe(settings))
        assert "no capability tx-sequence" in settings.findings.missing_protocols["sequences"]
        result = run_scenario(select_scenarios("sequences", ["seq.rule/gap"])[0], settings)
        assert result.verdict is Verdict.SKIPPED and "no sequences" in result.message


def test_what_is_not_as_expected_is_told() -> None:
    """By outcomes, by the answer to an attach, by a link that should be refused."""
    with running_broker() as running:
        settings = Settings(Address.parse(running.url), run_id="t")
        broker = Broker(attrs.evolve(settings, findings=probe(settings)), "helpers")
        try:
            sender = stream_sender(broker, "s")
            with pytest.raises(Unexpected, match="expected \\['seq:gap'\\], got \\['accepted'\\]"):
                expect_told(sender, [placed((1, 1, 0), None)], ["seq:gap"])
            with pytest.raises(Unexpected, match="expected seq-id and seq-no"):
                standing(stream_sender(broker))
            with pytest.raises(Unexpected, match="to be refused"):
                refusal_of_link(broker, "t")
            with pytest.raises(NotApplicable, match="names no user"):
                other_principal(broker)
            assert isinstance(sender, Sender)
        finally:
            broker.discard()


def test_outcomes_in_words() -> None:
    """Accepted, or the condition of a rejection; nothing else is an answer."""
    assert words([Accepted()]) == ["accepted"]
    for state in (Released(), Rejected(), None):
        with pytest.raises(Unexpected, match="expected accepted, or rejected with an error"):
            words([state])
    with pytest.raises(Unexpected, match="the number: expected 1, got 2"):
        expect_equal("the number", 1, 2)

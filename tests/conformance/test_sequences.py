"""The scenarios of sequenced streams, against brokers without them; and what their helpers tell."""

import pytest

from amqp_broker.configuration import QueuePolicy
from amqp_broker.conformance.dialogue import Sender
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, expect_equal
from amqp_broker.conformance.sequences import (
    expect_link_refused,
    expect_told,
    other_principal,
    placed,
    standing,
    stream_sender,
    words,
)
from amqp_broker.frames import Accepted, Rejected, Released
from amqp_broker.testing import memory_config, running_broker
from tests.conformance.probed import message_of_skipped, probed, scenario_broker


def test_a_broker_without_sequences_is_found_out() -> None:
    """Its scenarios are skipped with the reason."""
    config = memory_config(queue_policies=(QueuePolicy(pattern="**", sequence="off"),))
    with running_broker(config) as broker:
        settings = probed(broker.url, run_id="off")
        assert "no capability tx-sequence" in settings.findings.missing_protocols["sequences"]
        assert "no sequences" in message_of_skipped(settings, "sequences", "seq.rule/gap")


def test_what_is_not_as_expected_is_told() -> None:
    """By outcomes, by the answer to an attach, by a link that should be refused."""
    with running_broker() as running, scenario_broker(probed(running.url)) as broker:
        sender = stream_sender(broker, "s")
        with pytest.raises(Unexpected, match="expected \\['seq:gap'\\], got \\['accepted'\\]"):
            expect_told(sender, [placed((1, 1, 0), None)], ["seq:gap"])
        with pytest.raises(Unexpected, match="expected seq-id and seq-no"):
            standing(stream_sender(broker))
        with pytest.raises(Unexpected, match="expected a null terminus"):
            expect_link_refused(broker, "t", "amqp:not-allowed")
        with pytest.raises(NotApplicable, match="names no user"):
            other_principal(broker)
        assert isinstance(sender, Sender)


def test_outcomes_in_words() -> None:
    """Accepted, or the condition of a rejection; nothing else is an answer."""
    assert words([Accepted()]) == ["accepted"]
    for state in (Released(), Rejected(), None):
        with pytest.raises(Unexpected, match="expected accepted, or rejected with an error"):
            words([state])
    with pytest.raises(Unexpected, match="the number: expected 1, got 2"):
        expect_equal("the number", 1, 2)

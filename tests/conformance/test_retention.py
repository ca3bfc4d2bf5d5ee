"""The scenarios of reading by offset, against brokers without it; what their helpers tell; the sentences."""

import pytest

from amqp_broker.configuration import AccessRule, QueuePolicy
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.retention import (
    Asker,
    expect_offsets,
    expect_refused,
    filled,
    reader_on,
    require_events,
    source_of,
)
from amqp_broker.testing import memory_config, running_broker
from tests.conformance.probed import message_of_skipped, probed, scenario_broker


def test_a_broker_whose_queues_do_not_retain_is_found_out() -> None:
    """Its scenarios are skipped with the reason."""
    with running_broker() as broker:
        settings = probed(broker.url, run_id="none")
        assert "amqp:not-allowed" in settings.findings.missing_protocols["retention"]
        assert "no retention" in message_of_skipped(settings, "retention", "ret.reading/starts")


def test_what_is_not_as_expected_is_told() -> None:
    """Other offsets, a link that should be refused, a request that should not, and one that should."""
    config = memory_config(queue_policies=(QueuePolicy(pattern="kept.*", retention_ms=60_000),))
    with running_broker(config) as running, scenario_broker(probed(running.url)) as broker:
        kept = filled(broker, 3)
        with pytest.raises(Unexpected, match="offsets: expected \\[1\\], got \\[0\\]"):
            expect_offsets(reader_on(kept.session, kept.address, "first", credit=1), [1])
        with pytest.raises(Unexpected, match="expected a null terminus"):
            expect_refused(kept.session, "amqp:not-allowed", source_of(kept.address, start="first"))
        questions = Asker(broker.session(container="asker"))
        with pytest.raises(Unexpected, match="expected rejected"):
            questions.refused("describe")
        require_events(broker.session(container="events"))


def test_who_may_not_read_the_journal_shows_nothing_of_it() -> None:
    """Its scenarios are not applicable rather than failed."""
    rule = AccessRule(users=("anonymous",), actions=("connect", "create", "send", "receive", "browse"))
    config = memory_config(access_rules=(rule,))
    with running_broker(config) as running, scenario_broker(probed(running.url)) as broker:
        with pytest.raises(NotApplicable):
            require_events(broker.session())

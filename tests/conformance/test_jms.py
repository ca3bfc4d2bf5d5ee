"""The scenarios of JMS: the sentences, and brokers that offer less than ours."""

from typing import Any

import pytest

from amqp_broker.conformance.jms import SHARED, TOPIC, require_offered, selecting, selector, source
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.requirements import load_requirements
from amqp_broker.conformance.scenario import select_scenarios
from amqp_broker.testing import running_broker
from tests.conformance.probed import message_of_skipped, probed, scenario_broker


def test_no_sentence_about_jms_is_left_out() -> None:
    """Each sentence of the page is shown by a scenario of its profile."""
    shown = {row for one in select_scenarios("jms", []) for row in one.rows}
    assert shown == {row.id for row in load_requirements().values() if row.protocol == "jms"}


def test_what_a_broker_does_not_offer_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason: here the connection offers nothing, and priorities are not minded."""
    monkeypatch.setattr("amqp_broker.broker.SHARED_SUBS", "OTHERS")
    with running_broker() as running:
        settings = probed(running.url)
        for name, reason in (
            ("jms.subscription/shared", "does not offer SHARED-SUBS"),
            ("jms.message/priority", "all messages are of one priority"),
        ):
            assert reason in message_of_skipped(settings, "jms", name)


def test_a_terminus_without_the_capability_is_skipped() -> None:
    """A queue has none of a topic: refused, or not among what the terminus says."""
    with running_broker() as running, scenario_broker(probed(running.url)) as broker:
        session = broker.session()
        source(session, broker.queue(), "queue")
        with pytest.raises(NotApplicable, match="has no topic and shared"):
            source(session, broker.queue(), TOPIC, SHARED)
        with pytest.raises(NotApplicable, match="lacks x-other"):
            source(broker.session(container="other"), broker.queue(), "x-other")
        with pytest.raises(NotApplicable, match="does not offer x-other"):
            require_offered(session, "x-other")


@pytest.mark.parametrize(
    ("held", "error"),
    [(None, NotApplicable), (selector("colour = 'blue'"), Unexpected)],
    ids=["none", "another"],
)
def test_a_source_without_the_selector(
    monkeypatch: pytest.MonkeyPatch, held: dict[Any, Any] | None, error: type[Exception]
) -> None:
    """A broker that knows no selectors has nothing to show; one that says another one is wrong."""
    monkeypatch.setattr("amqp_broker.nodes.queues.filters_in_effect", lambda asked: (None, held))
    with running_broker() as running, scenario_broker(probed(running.url)) as broker:
        with pytest.raises(error, match="filter"):
            selecting(broker.session(), broker.queue(), selector("colour = 'red'"))

"""The scenarios of sets of half messages: the profile, the sentences, and a broker that has none."""

import pytest

from amqp_broker.conformance.outcomes import Unexpected
from amqp_broker.conformance.requirements import load_requirements
from amqp_broker.conformance.scenario import select_scenarios
from amqp_broker.conformance.sets import Sets, refusal
from amqp_broker.half_sets.nodes import SetRequests
from amqp_broker.testing import running_broker
from tests.conformance.probed import message_of_skipped, probed, scenario_broker


def test_no_sentence_about_sets_is_left_out() -> None:
    """Each sentence of the page is shown by a scenario of its profile."""
    shown = {row for one in select_scenarios("sets", []) for row in one.rows}
    assert shown == {row.id for row in load_requirements().values() if row.protocol == "sets"}


def test_a_broker_without_sets_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scenarios are skipped with the reason."""
    monkeypatch.setattr(SetRequests, "take", lambda self, group, post: False)
    with running_broker() as broker:
        settings = probed(broker.url, run_id="none")
        assert "void" in settings.findings.missing_protocols["sets"]
        assert "no sets" in message_of_skipped(settings, "sets", "set.stage/hidden")


def test_what_is_not_as_expected_is_told() -> None:
    """A link that should be refused, a commit that should not, and one that should."""
    with running_broker() as running:
        settings = probed(running.url)
        with scenario_broker(settings) as broker, pytest.raises(Unexpected, match="expected a null terminus"):
            Sets(broker).refused("one", "half:decided")
        with scenario_broker(settings, "more") as broker:
            sets = Sets(broker)
            with pytest.raises(Unexpected, match="half:unknown-set"):
                sets.commit(("never", 1, 1))
            with pytest.raises(Unexpected, match="accepted"):
                refusal(sets.asked_to_commit([]), "half:stale-epoch")

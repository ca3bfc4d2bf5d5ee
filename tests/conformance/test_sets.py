"""The scenarios of sets of half messages: the profile, the sentences, and a broker that has none."""

import attrs
import pytest

from amqp_broker.conformance.broker import Address, Broker, Settings, probe
from amqp_broker.conformance.outcomes import Unexpected, Verdict
from amqp_broker.conformance.requirements import load_requirements
from amqp_broker.conformance.runner import run_scenario
from amqp_broker.conformance.scenario import select_scenarios
from amqp_broker.conformance.sets import Sets, refusal
from amqp_broker.half_sets.nodes import SetRequests
from amqp_broker.testing import running_broker


def test_sets_are_a_profile_of_their_own() -> None:
    """Each of its scenarios shows sentences of the page, and no sentence is left out."""
    chosen = select_scenarios("sets", [])
    assert len(chosen) >= 20 and {one.protocol for one in chosen} == {"sets"}
    shown = {row for one in chosen for row in one.rows}
    assert shown == {row.id for row in load_requirements().values() if row.protocol == "sets"}


def test_a_broker_without_sets_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scenarios are skipped with the reason."""
    monkeypatch.setattr(SetRequests, "take", lambda self, group, post: False)
    with running_broker() as broker:
        settings = Settings(Address.parse(broker.url), run_id="none")
        settings = attrs.evolve(settings, findings=probe(settings))
        assert "void" in settings.findings.missing_protocols["sets"]
        result = run_scenario(select_scenarios("sets", ["set.stage/hidden"])[0], settings)
        assert result.verdict is Verdict.SKIPPED and "no sets" in result.message


def test_what_is_not_as_expected_is_told() -> None:
    """A link that should be refused, a commit that should not, and one that should."""
    with running_broker() as running:
        settings = Settings(Address.parse(running.url), run_id="t")
        broker = Broker(attrs.evolve(settings, findings=probe(settings)), "helpers")
        try:
            sets = Sets(broker)
            with pytest.raises(Unexpected, match="to be refused"):
                sets.refused("one", "half:decided")
        finally:
            broker.discard()
        broker = Broker(attrs.evolve(settings, findings=probe(settings)), "more")
        try:
            sets = Sets(broker)
            with pytest.raises(Unexpected, match="half:unknown-set"):
                sets.commit(("never", 1, 1))
            with pytest.raises(Unexpected, match="accepted"):
                refusal(sets.asked_to_commit([]), "half:stale-epoch")
        finally:
            broker.discard()

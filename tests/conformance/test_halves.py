"""The scenarios of half messages, against brokers without them; and what their helpers tell."""

from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from amqp_broker.client.settings import Endpoint
from amqp_broker.conformance.broker import Broker, Findings, Settings, probe
from amqp_broker.conformance.halves import (
    CONFLICT,
    NOT_FOUND,
    SOON,
    UNKNOWN,
    Check,
    Halves,
    expect_capability,
    half,
    half_id_annotation,
    refusal,
    resolution,
)
from amqp_broker.conformance.messages import (
    APPLICATION_PROPERTIES,
    MESSAGE_ANNOTATIONS,
    map_of,
    properties_of,
)
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, Verdict, expect_equal
from amqp_broker.conformance.queues import body_of
from amqp_broker.conformance.runner import run_scenario
from amqp_broker.conformance.scenario import load_scenarios, select_scenarios
from amqp_broker.frames import (
    AMQP_HEADER,
    Accepted,
    Attach,
    Detach,
    Error,
    Released,
    Symbol,
    Target,
    Transfer,
)
from amqp_broker.testing import running_broker
from amqp_broker.testing.peer import Delivery
from tests.conformance.probed import probed, scenario_broker
from tests.conformance.scripted_server import BEGUN, EVERYTHING, OPENED, Step, octets, scripted_server

SETTINGS = Settings(Endpoint("127.0.0.1", 1, False))
def _attach(target: Target | None) -> Attach:
    return Attach(name="sender-0", handle=0, role=True, target=target)


REFUSED = Detach(handle=0, closed=True, error=Error(condition="amqp:not-found"))
ORDINARY = Target(address="$half-resolve/conformance")


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([_attach(None), REFUSED], "amqp:not-found"),
        ([_attach(ORDINARY)], "an ordinary node"),
        ([], "nothing came"),
    ],
)
def test_a_broker_without_half_messages_is_found_out(answers: list[object], reason: str) -> None:
    """One that refuses the address, makes an ordinary node of it, or says nothing."""
    opened: list[Step] = [OPENED, EVERYTHING]
    no_coordinator: list[Step] = [BEGUN + octets(_attach(None), REFUSED), EVERYTHING]
    no_halves: list[Step] = [BEGUN + octets(*answers), EVERYTHING]
    with scripted_server([8, AMQP_HEADER, EVERYTHING], opened, opened, no_coordinator, no_halves) as port:
        findings = probe(Settings(Endpoint("127.0.0.1", port, False), timeout_s=0.3))
    assert reason in findings.missing_protocols["half-messages"]


def test_without_half_messages_all_of_them_are_skipped() -> None:
    """No scenario fails, or even connects; those of the standard are not touched."""
    findings = Findings((), True, missing_protocols={"half-messages": "it says no"})
    settings = attrs.evolve(SETTINGS, findings=findings)
    results = [run_scenario(one, settings) for one in select_scenarios("half-messages", [])]
    assert {(result.verdict, result.message) for result in results} == {
        (Verdict.SKIPPED, "no half-messages: it says no")
    }
    header = next(one for one in load_scenarios() if one.id == "2.2/zeroes")
    assert run_scenario(header, settings).verdict is Verdict.FAILED  # nobody listens


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Our broker, as a scenario sees it."""
    with running_broker() as server:
        settings = probed(server.url, run_id="h", timeout_s=0.5)
        assert "half-messages" not in settings.findings.missing_protocols
        with scenario_broker(settings, "half.put/test") as found:
            yield found


def test_wrong_outcomes_are_told(broker: Broker) -> None:
    """An accepted where a refusal is due, a refusal where an accepted is due, and another condition."""
    producer = Halves(broker).producer()
    producer.put(half("1"))
    for wrong in (
        lambda: producer.refused(half("1"), CONFLICT),
        lambda: producer.put(half(None)),
        lambda: producer.commit("2"),
        lambda: producer.conflict("2", "commit", CONFLICT),
        lambda: producer.conflict("1", "commit", UNKNOWN),
    ):
        with pytest.raises(Unexpected):
            wrong()


def test_wrong_checks_are_told(broker: Broker) -> None:
    """A check of another half message or attempt, one that should not come, and another settlement."""
    halves = Halves(broker)
    producer, checker = halves.producer(), halves.checker()
    for half_id in ("1", "2", "3"):
        producer.put(half(half_id, named=SOON))
    with pytest.raises(Unexpected, match="expected a check of 'other'"):
        checker.asked("other")
    with pytest.raises(Unexpected, match="attempt 2"):
        checker.asked("2", attempt=2)
    with pytest.raises(Unexpected, match="expected no transfer"):
        checker.is_silent(1.0)
    halves.leave(checker.session)
    fourth = halves.checker("fourth", by_outcome=True)
    producer.put(half("4", named=SOON))
    check = fourth.asked("4")
    producer.commit("4")
    with pytest.raises(Unexpected, match="expected a settled accepted"):
        fourth.settlement(check, Accepted)
    fourth.settlement(check, Released)


def test_a_refusal_is_looked_at(broker: Broker) -> None:
    """An attach that is not refused, or with another condition, is told."""
    halves = Halves(broker)
    session = halves.session("one")
    with pytest.raises(Unexpected, match="expected a null terminus"):
        refusal(session, f"$half-resolve/{halves.group}", NOT_FOUND)
    with pytest.raises(Unexpected, match="expected amqp:not-allowed"):
        refusal(halves.session("two"), "$half-resolve", "amqp:not-allowed")
    assert refusal(halves.session("three"), "$half-resolve", NOT_FOUND).condition == NOT_FOUND


def test_the_short_times_of_a_group_are_found_out(broker: Broker) -> None:
    """A group with a maximum age of 4 h is not the one that a scenario of short times needs."""
    with pytest.raises(NotApplicable, match="no short times"):
        Halves(broker, "conformance.lock").require_short()


@pytest.mark.parametrize(
    ("capabilities", "properties"),
    [(None, {"half-version": 1}), (("half-messages",), None), (("half-messages",), {"half-version": 2})],
)
def test_a_missing_capability_is_told(capabilities: Any, properties: Any) -> None:
    """No capability, no version, another version."""
    target = Target(address="x", capabilities=capabilities)
    attach = Attach(name="x", handle=0, role=True, target=target, properties=properties)
    with pytest.raises(Unexpected, match="half-version 1"):
        expect_capability(attach, target)


def test_messages_are_what_they_seem() -> None:
    """What is put, resolved and asked is built and read back."""
    payload = half("1", b"body", named={"a": "b"}, annotations={"x-opt-half-id": "1"}, subject="s")
    properties = properties_of(payload)
    assert properties is not None and (properties.message_id, properties.subject) == ("1", "s")
    assert map_of(payload, APPLICATION_PROPERTIES) == {"a": "b"}
    delivery = Delivery(Transfer(handle=0, delivery_id=0), payload)
    assert (body_of(delivery), half_id_annotation(delivery)) == (b"body", "1")
    assert map_of(payload, MESSAGE_ANNOTATIONS) == {"x-opt-half-id": "1"}
    properties = properties_of(resolution("1", "commit", to="there"))
    assert properties is not None
    assert (properties.correlation_id, properties.subject, properties.to) == ("1", "commit", "there")
    check = Check(Delivery(Transfer(handle=0, delivery_id=0), half(None, named={"half_attempt": 3})))
    assert (check.attempt, check.half_id) == (3, None)
    with pytest.raises(Unexpected, match="the color"):
        expect_equal("the color", Symbol("a"), "a")

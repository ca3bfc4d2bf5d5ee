"""Running scenarios: what each one's end means, what a row of the standard makes of it, known gaps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.client.settings import Endpoint
from amqp_broker.conformance.broker import Broker, Findings, Settings, endpoint_of
from amqp_broker.conformance.gaps import load_gaps
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, Verdict
from amqp_broker.conformance.runner import OUR_FAULT, Result, judge_rows, run_scenario
from amqp_broker.conformance.scenario import Scenario, load_scenarios
from amqp_broker.conformance.survival import run
from amqp_broker.frames import AMQP_HEADER, Close, Error, Open, encode_frame
from amqp_broker.testing import running_broker
from tests.conformance.probed import probed
from tests.conformance.scripted_server import BEGUN, EVERYTHING, octets, scripted_server

SETTINGS = Settings(Endpoint("127.0.0.1", 1, False))


def _passes(broker: Broker) -> None:
    """Passes."""


def _fails(broker: Broker) -> None:
    """Fails."""
    broker.transcript.event("", "something happened")
    raise Unexpected("expected this, got that")


def _raises(error: Exception) -> Callable[[Broker], None]:
    """A scenario that ends so."""

    def body(broker: Broker) -> None:
        raise error

    return body


def _scenario(body: object, **changes: Any) -> Scenario:
    one = Scenario("2.2/example", ("2.2-01",), "An example.", body)  # type: ignore[arg-type]
    return attrs.evolve(one, **changes)


@pytest.mark.parametrize(
    ("body", "verdict", "message"),
    [
        (_passes, Verdict.PASSED, ""),
        (_fails, Verdict.FAILED, "expected this, got that"),
        (_raises(NotApplicable("nothing to see here")), Verdict.SKIPPED, "nothing to see here"),
        (_raises(ValueError("a mistake")), Verdict.FAILED, "ValueError: a mistake (test_runner.py:"),
        (Broker.connect, Verdict.FAILED, "127.0.0.1:1"),
    ],
)
def test_the_end_of_a_scenario_is_its_verdict(body: object, verdict: Verdict, message: str) -> None:
    """Returning passes; each exception has its meaning, and its message is kept."""
    result = run_scenario(_scenario(body), SETTINGS)
    assert result.verdict is verdict
    assert message in result.message


def _leaves_three_open(broker: Broker) -> None:
    """Leaves a connection in good order, one that was dropped, and one with an error."""
    broker.session().sender(broker.queue())
    broker.session().peer.drop()
    session = broker.session()
    session.flow(handle=7, delivery_count=0, link_credit=1)
    session.expect_end("amqp:session:unattached-handle")


def test_what_is_left_open_is_closed_in_good_order() -> None:
    """The connection on which nothing went wrong is closed, the others are left alone."""
    with running_broker() as server:
        on_purpose = attrs.evolve(_scenario(_leaves_three_open), breaks=("2.8.17-unattached-handle",))
        result = run_scenario(on_purpose, probed(server.url))
    assert result.verdict is Verdict.PASSED, result.message
    closes = [line.split(" ms  ")[1] for line in result.transcript if line.endswith("close()")]
    assert closes == ["-> close()", "<- close()"]


def test_a_scenario_that_breaks_a_rule_by_mistake_proves_nothing() -> None:
    """Whatever the broker does then, it is not told as the broker's fault."""
    with running_broker() as server:
        result = run_scenario(_scenario(_leaves_three_open), probed(server.url))
    assert result.verdict is Verdict.SKIPPED and result.message.startswith(OUR_FAULT), result.message


def test_a_rule_that_the_broker_breaks_fails_who_names_it() -> None:
    """The scenario that names the rule fails; another notes it by the way, and fails for nothing of it."""
    opened = AMQP_HEADER + encode_frame(1, Open(container_id="server")) + encode_frame(0, Close())
    for rows, verdict in ((("2.4.1-channel-0",), Verdict.FAILED), (("2.2-01",), Verdict.PASSED)):
        with scripted_server([opened, 8]) as port:
            settings = Settings(Endpoint("127.0.0.1", port, False), findings=Findings((), True))
            one = attrs.evolve(_scenario(lambda broker: broker.opened() and None), rows=rows)
            result = run_scenario(one, settings)
        assert result.verdict is verdict, result.message
        assert [breach.rule for breach in result.breaches] == ["2.4.1-channel-0"][: verdict is Verdict.PASSED]


def test_a_connection_that_is_not_closed_in_good_order_fails() -> None:
    """The broker has to answer the close, also where the scenario says nothing of it."""
    opened = AMQP_HEADER + encode_frame(0, Open(container_id="server"))
    with scripted_server([opened, 8]) as port:
        settings = Settings(Endpoint("127.0.0.1", port, False), findings=Findings((), True))
        result = run_scenario(_scenario(lambda broker: broker.opened() and None), settings)
    assert result.verdict is Verdict.FAILED and "expected close, but the broker" in result.message


def test_each_connection_is_of_a_container_of_its_own() -> None:
    """Unless a scenario names one: a broker may take one connection of each only."""
    broker = Broker(SETTINGS, "2.2/example")
    usual = [broker.own_open().container_id for _ in range(3)]
    assert len(set(usual)) == 3 and usual[0] == broker.container_id()
    assert [broker.own_open(container=name).container_id for name in ("", "other")] == [
        broker.container_id(),
        broker.container_id("other"),
    ]


def _two_of_one(broker: Broker) -> None:
    """Two connections of one container, of which the first may have gone."""
    broker.session()
    broker.session(container="")


@pytest.mark.parametrize(
    ("condition", "verdict", "message"),
    [
        ("amqp:invalid-field", Verdict.SKIPPED, "one connection of a container at a time, and may"),
        ("amqp:internal-error", Verdict.FAILED, "expected amqp:invalid-field, got close"),
    ],
)
def test_a_container_that_may_not_come_twice_shows_nothing(
    condition: str, verdict: Verdict, message: str
) -> None:
    """The standard does not say that it may; a close for another reason stays the broker's."""
    failed = {"amqp:connection-establishment-failed": True}
    refused = octets(Open(container_id="", properties=failed), Close(error=Error(condition)))
    with scripted_server([BEGUN, EVERYTHING], [AMQP_HEADER + refused, EVERYTHING]) as port:
        settings = Settings(Endpoint("127.0.0.1", port, False), findings=Findings((), True))
        result = run_scenario(_scenario(_two_of_one), settings)
    assert result.verdict is verdict and message in result.message


def test_what_the_broker_does_not_have_is_not_applicable() -> None:
    """What a description says that it lacks is skipped with that reason; nothing is tried."""
    settings = attrs.evolve(SETTINGS, lacks={"2.2": "it has no versions"})
    result = run_scenario(_scenario(_fails), settings)
    assert (result.verdict, result.message) == (Verdict.SKIPPED, "it has no versions")


def test_where_every_address_exists_none_is_unknown() -> None:
    """A scenario that needs an address which is refused has nothing to show there."""
    settings = attrs.evolve(SETTINGS, unknown_address="")
    result = run_scenario(_scenario(lambda broker: broker.settings.unknown_address and None), settings)
    assert (result.verdict, result.message) == (Verdict.SKIPPED, "every address is a node of this broker")


def test_the_transcript_is_kept() -> None:
    """A result carries what was seen."""
    assert "something happened" in run_scenario(_scenario(_fails), SETTINGS).transcript[0]


def test_a_known_gap_is_admitted_with_its_reason() -> None:
    """A scenario that is listed as a gap and fails is admitted, not failed."""
    settings = attrs.evolve(SETTINGS, gaps={"2.2/example": "we know"})
    result = run_scenario(_scenario(_fails), settings)
    assert result.verdict is Verdict.ADMITTED
    assert "we know" in result.message and "expected this, got that" in result.message


def test_a_gap_that_has_closed_is_a_failure() -> None:
    """A scenario that is listed as a gap and passes fails, so that the list stays true."""
    settings = attrs.evolve(SETTINGS, gaps={"2.2/example": "we know"})
    result = run_scenario(_scenario(_passes), settings)
    assert result.verdict is Verdict.FAILED and "take it off the list" in result.message


def test_results_come_in_the_order_asked_for() -> None:
    """Waiting scenarios start first and lone ones last, but results keep the given order, each told once."""
    scenarios = [
        _scenario(_passes, id="2.2/a", alone=True),
        _scenario(_passes, id="2.2/b"),
        _scenario(_passes, id="2.2/c", waits=True),
    ]
    told: list[str] = []
    with running_broker() as server:
        report = run(scenarios, probed(server.url), "core", 2, lambda result: told.append(result.scenario.id))
    assert [result.scenario.id for result in report.results] == ["2.2/a", "2.2/b", "2.2/c"]
    assert report.count(Verdict.PASSED) == 3 and report.incidents == ()
    assert sorted(told) == ["2.2/a", "2.2/b", "2.2/c"] and told[-1] == "2.2/a"


def _status(*verdicts: Verdict) -> tuple[str, str]:
    """Returns the status and reason of a row whose scenarios ended so."""
    showing = [one for one in load_scenarios() if "2.2-07" in one.rows]
    results = [
        Result(one, verdict, 0.0, f"message {verdict.value}")
        for one, verdict in zip(showing, verdicts, strict=False)
    ]
    row = next(row for row in judge_rows(results) if row.requirement.id == "2.2-07")
    return row.status, row.reason


def test_a_row_is_judged_by_its_scenarios() -> None:
    """One failure fails a row, an admitted gap admits it, one pass among skips passes it, none at all
    leaves it out.
    """
    passed, failed, skipped, admitted = Verdict.PASSED, Verdict.FAILED, Verdict.SKIPPED, Verdict.ADMITTED
    assert _status(passed, failed) == ("failed", "")
    assert _status(passed, admitted) == ("admitted", "message admitted")
    assert _status(passed, Verdict.NOT_RUN) == ("not run", "message not run")
    assert _status(skipped, passed) == ("passed", "")
    assert _status(skipped, skipped) == ("skipped", "message skipped")
    assert _status()[0] == "left out"


def test_a_row_without_a_scenario_has_its_reason() -> None:
    """A row that nothing shows is unseen, for the reason in the table."""
    row = next(row for row in judge_rows([]) if row.requirement.id == "2.2-04")
    assert row.status == "unseen" and row.reason == row.requirement.reason


def test_rows_are_those_of_what_ran() -> None:
    """Sentences of a protocol of this project are judged where its scenarios ran, the standard's where others
    did.
    """
    halves = next(one for one in load_scenarios() if one.protocol == "half-messages")
    ran = [Result(halves, Verdict.PASSED, 0.0)]
    assert {row.requirement.protocol for row in judge_rows(ran)} == {"half-messages"}
    both = [*ran, Result(_scenario(_passes), Verdict.PASSED, 0.0)]
    assert {row.requirement.protocol for row in judge_rows(both)} == {"half-messages", ""}
    assert {row.requirement.protocol for row in judge_rows(both[1:])} == {""}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[gap]]\nscenario = '2.2/nothing'\nreason = 'x'", "no scenario is called '2.2/nothing'"),
        ("[[gap]]\nscenario = '2.2/zeroes'", "exactly the keys scenario and reason"),
        ("[[gap]\n", "gaps.toml"),
    ],
)
def test_a_list_of_gaps_is_checked(tmp_path: Path, text: str, message: str) -> None:
    """A list of gaps names scenarios that exist, with a reason each."""
    path = tmp_path / "gaps.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_gaps(path)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://host", Endpoint("host", 5672, False)),
        ("amqp://host:1234/", Endpoint("host", 1234, False)),
        ("amqp://us%40er:p%3Aw@[::1]:5", Endpoint("::1", 5, False, "us@er", "p:w")),
    ],
)
def test_an_address_is_read(url: str, expected: Endpoint) -> None:
    """Host, port and login are taken from the URL, escapes undone; the login is not shown again."""
    address = endpoint_of(url)
    assert address == expected
    assert "p:w" not in str(address) and str(address).startswith("amqp://")


@pytest.mark.parametrize("url", ["http://host", "host:5672", "amqp://", "amqp://host/q", "amqp://host:x", "amqps://h"])
def test_a_bad_address_is_refused(url: str) -> None:
    """What is no address of a broker is refused with the reason."""
    with pytest.raises(ValueError, match="."):
        endpoint_of(url)

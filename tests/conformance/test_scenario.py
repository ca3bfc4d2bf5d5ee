"""The list of scenarios and how they are selected."""

import pytest

from amqp_broker.client.settings import Endpoint
from amqp_broker.conformance.broker import Broker, Settings
from amqp_broker.conformance.scenario import (
    PROFILES,
    Case,
    Scenario,
    cases,
    load_scenarios,
    scenario,
    select_scenarios,
)

BROKER = Broker(Settings(Endpoint("127.0.0.1", 1, False)), "2.2/example")


def test_there_are_scenarios_for_every_part() -> None:
    """More than 400 scenarios, of all five parts, in the standard's order."""
    ids = [one.id for one in load_scenarios() if not one.protocol]
    assert len(ids) > 400
    assert {one.split(".")[0] for one in ids} == {"1", "2", "3", "4", "5"}
    assert len(set(ids)) == len(ids)


def test_a_scenario_is_titled_by_its_docstring() -> None:
    """Each scenario has a one-sentence title and an id of section and name."""
    for one in load_scenarios():
        assert one.title.endswith("."), one.id
        assert one.section[0].isdigit() != bool(one.protocol)
        assert "/" in one.id and " " not in one.id


def test_core_leaves_out_promises_of_this_project() -> None:
    """The profile full holds the profile core and more."""
    core = {one.id for one in select_scenarios("core", [])}
    full = {one.id for one in select_scenarios("full", [])}
    assert core < full
    assert not any(one.protocol for one in select_scenarios("full", []))


@pytest.mark.parametrize(
    ("profile", "prefix", "least"),
    [
        ("half-messages", "half", 81),
        ("sequences", "seq", 51),
        ("retention", "ret", 21),
        ("sets", "set", 20),
        ("jms", "jms", 60),
    ],
)
def test_a_protocol_is_a_profile_of_its_own(profile: str, prefix: str, least: int) -> None:
    """It holds the scenarios of that protocol and nothing else, and each shows sentences of it."""
    chosen = select_scenarios(profile, [])
    assert len(chosen) >= least and {one.protocol for one in chosen} == {profile}
    for one in chosen:
        assert all(row.startswith(f"{prefix}.") for row in one.rows), one.id


def test_each_scenario_is_in_one_profile() -> None:
    """The profiles share nothing, and with the promises of this project they are everything."""
    parts = {name: {one.id for one in select_scenarios(name)} for name in PROFILES if name != "full"}
    assert all(parts.values()) and sum(map(len, parts.values())) == len(set().union(*parts.values()))
    promises = {one.id for one in load_scenarios() if one.promise}
    assert set().union(*parts.values(), promises) == {one.id for one in load_scenarios()}
    assert not promises & set().union(*parts.values())


@pytest.mark.parametrize(
    ("called", "sections"),
    [("2.7.3", {"2.7.3"}), ("2.7?", set()), ("transactions", {"4."}), ("2.5", {"2.5"}), ("2.2/z*", {"2"})],
)
def test_scenarios_are_called_by_section_profile_or_glob(called: str, sections: set[str]) -> None:
    """Only those that are meant are chosen, and with ``but`` all others."""
    chosen = select_scenarios("full", [called])
    assert bool(chosen) == bool(sections)
    assert all(any(one.section.startswith(section) for section in sections) for one in chosen)
    rest = select_scenarios("full", but=[called])
    assert len(rest) + len(chosen) == len(select_scenarios("full")) and not set(rest) & set(chosen)


def test_patterns_select_by_id() -> None:
    """A glob selects by the whole id; several add up; one that nothing matches selects nothing."""
    assert {one.section for one in select_scenarios("full", ["2.2/*"])} == {"2.2"}
    assert len(select_scenarios("full", ["2.2/supported-version", "2.2/zeroes"])) == 2
    assert select_scenarios("full", ["9.9*"]) == []


def test_a_scenario_without_rows_is_refused() -> None:
    """A scenario that shows no row of the standard is a mistake of its author."""
    with pytest.raises(AssertionError, match="names no row"):
        scenario("2.2/aimless")(lambda broker: None)


def test_a_second_scenario_of_one_id_is_refused() -> None:
    """Two scenarios cannot share an id."""
    load_scenarios()
    with pytest.raises(AssertionError, match="two scenarios"):
        scenario("2.2/zeroes", "2.2-10")(lambda broker: None)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> dict[str, Scenario]:
    """The scenarios that a test registers, and no other."""
    found: dict[str, Scenario] = {}
    monkeypatch.setattr("amqp_broker.conformance.scenario._registered", found)
    return found


class Greeter:
    """Somebody whom a scenario wants to begin with."""

    def __init__(self, broker: Broker) -> None:
        self.name = broker.scenario_id


def test_a_parameter_is_made_by_its_class(registered: dict[str, Scenario]) -> None:
    """The broker is itself; another class is called with it, once for each parameter, in their order."""
    seen: list[object] = []

    @scenario("2.2/greeted", "2.2-01")
    def greeted(one: Greeter, two: Greeter, broker: Broker) -> None:
        """Greets."""
        seen.extend((one.name, broker, one is two))

    registered["2.2/greeted"].body(BROKER)
    assert seen == ["2.2/example", BROKER, False]


def test_a_case_is_a_scenario_with_its_own_values(registered: dict[str, Scenario]) -> None:
    """Each has its id, rows, title and options, and gives the function what it says."""
    seen: list[object] = []

    @cases(
        Case("2.2/a", "2.2-01 2.2-02", "The first.", 1),
        Case("half.put/b", "half.put-id", "The second.", 2, alone=True, named=3),
    )
    def taken(broker: Broker, number: int, named: int = 0) -> None:
        seen.append((broker, number, named))

    one, two = registered.values()
    one.body(BROKER)
    two.body(BROKER)
    assert seen == [(BROKER, 1, 0), (BROKER, 2, 3)]
    assert (one.rows, one.title, one.alone) == (("2.2-01", "2.2-02"), "The first.", False)
    assert (one.profile, two.profile, two.alone) == ("core", "half-messages", True)

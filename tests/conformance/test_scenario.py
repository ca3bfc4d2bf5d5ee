"""The list of scenarios and how they are selected."""

import pytest

from amqp_broker.conformance.scenario import load_scenarios, scenario, select_scenarios


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


def test_a_protocol_of_this_project_is_a_profile_of_its_own() -> None:
    """It holds the scenarios of that protocol and nothing else, and each shows sentences of it."""
    chosen = select_scenarios("half-messages", [])
    assert len(chosen) > 80 and {one.protocol for one in chosen} == {"half-messages"}
    for one in chosen:
        assert all(row.startswith("half.") for row in one.rows), one.id


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


def test_sequences_are_a_profile_of_their_own() -> None:
    """More than 50 scenarios, each of which shows sentences of that page."""
    chosen = select_scenarios("sequences", [])
    assert len(chosen) > 50 and {one.protocol for one in chosen} == {"sequences"}
    for one in chosen:
        assert all(row.startswith("seq.") for row in one.rows), one.id

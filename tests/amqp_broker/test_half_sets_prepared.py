"""Sets that another broker decides about: prepared here, carried out or voided as their home says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amqp_broker.broker import Broker
from amqp_broker.frames import Accepted, Rejected
from amqp_broker.halves.administration import HalfRefusedByHand
from tests.support.broker_clients import (
    bodies,
    condition_of,
    counts,
    error_of,
    plain,
    receive,
    session_to,
    settle_down,
)
from tests.support.half_set_groups import nothing_is_held
from tests.support.half_sets import SetClient, half_sets, row
from tests.support.halves import answer, checker, events_of, named
from tests.support.jumping_broker import JumpingBroker, on_disk, stopping

HOME = "4cdb5b0e-6ee6-4e28-bb40-e0a5b0f9e0a1"
OTHER_HOME = "0d4f3a86-7a0c-4b1c-8f7e-5a5c2c1e2b33"


def states(client: SetClient) -> dict[str, str]:
    """What is staged, by set."""
    return {each["set"]: each["state"] for each in client.status()["sets"]}


def test_a_set_with_a_home_is_prepared(client: SetClient) -> None:
    """It says so, with all that is needed to go on with it; sealed again with the same is accepted."""
    one = client.sealed("one", row(b"1"), home=HOME)
    found = client.status()["sets"]
    told = {"set": "one", "epoch": 1, "state": "prepared", "count": 1, "checksum": one[2], "home": HOME}
    assert found == [told]
    assert isinstance(client.seal("one", row(b"1"), home=HOME), Accepted)
    assert condition_of(client.seal("one", row(b"2"), home=HOME)) == "half:mismatch"
    assert condition_of(client.seal("one", row(b"1"), home=OTHER_HOME)) == "half:prepared"
    assert condition_of(client.seal("one", row(b"1"))) == "half:prepared"
    client.sealed("plain", row(b"2"))
    assert condition_of(client.seal("plain", row(b"2"), home=HOME)) == "half:sealed"
    assert states(client) == {"one": "prepared", "plain": "sealed"}


def test_its_own_store_is_no_home(client: SetClient) -> None:
    """A broker that is named as home or store of its own sets has them as ever."""
    own = client.status()["log"]
    one = client.sealed("one", row(b"1"), home=own)
    two = client.sealed("two", row(b"2"), store=own)
    assert states(client) == {"one": "sealed", "two": "sealed"}
    assert isinstance(client.commit(one, (*two, own), home=own), Accepted)
    found = client.status(1)
    assert "home" not in found and [set(each) for each in found["winners"]] == 2 * [
        {"set", "count", "checksum"}
    ]


def test_a_decision_of_home_is_carried_out(broker: JumpingBroker, client: SetClient) -> None:
    """In the order named; what is prepared for this epoch and not named is gone, and so is what is open."""
    one = client.sealed("one", row(b"1"), row(b"2"), home=HOME)
    two = client.sealed("two", row(b"3"), home=HOME)
    client.sealed("loser", row(b"4"), home=HOME)
    client.staged("open", row(b"5"), epoch=0).detach()
    client.sealed("later", row(b"6"), epoch=2, home=HOME)
    for _ in range(2):
        assert isinstance(client.commit(two, one, home=HOME), Accepted)
    assert states(client) == {"later": "prepared"}
    found = client.status(1)
    assert (found["home"], found["latest_home"], found["decided"]) == (HOME, HOME, True)
    assert [each["set"] for each in found["winners"]] == ["two", "one"]
    got = receive(client.session.attach_receiver("r", "q", credit=10), 3)
    assert bodies(got) == [b"3", b"1", b"2"] and counts(broker, "q")[0] == 3
    decided = [event.fields for event in events_of(broker) if event.kind == "epoch.decided"]
    assert [each["home"] for each in decided] == [HOME]
    nothing_is_held(broker)


def test_what_home_names_has_to_be_prepared_for_it(client: SetClient) -> None:
    """Else nothing happens: a set of another home, a sealed or open one, or one with other figures."""
    one = client.sealed("one", row(b"1"), home=HOME)
    sealed = client.sealed("sealed", row(b"2"))
    assert condition_of(client.commit(one, sealed, home=HOME)) == "half:unsealed"
    assert condition_of(client.commit((one[0], 2, one[2]), home=HOME)) == "half:mismatch"
    assert condition_of(client.commit(one, ("never", 1, 1), home=HOME)) == "half:unknown-set"
    error = error_of(client.commit(one, home=OTHER_HOME))
    assert error.condition == "half:prepared"
    assert plain(error.info) == {"half_set": "one", "half_epoch": 1, "half_home": HOME}
    assert condition_of(client.commit((*one, OTHER_HOME), home=HOME)) == "amqp:invalid-field"
    assert not client.status(1)["decided"] and states(client) == {"one": "prepared", "sealed": "sealed"}
    assert isinstance(client.commit(one, home=HOME), Accepted)


def test_no_other_commit_voids_a_prepared_set(client: SetClient) -> None:
    """Without a home it is refused, of that epoch and of later ones; earlier epochs are not concerned."""
    client.sealed("one", row(b"1"), epoch=5, home=HOME)
    plainly = client.sealed("plain", row(b"2"), epoch=4)
    for epoch in (5, 6):
        assert condition_of(client.commit(epoch=epoch)) == "half:prepared"
    assert isinstance(client.commit(plainly, epoch=4), Accepted)
    assert states(client) == {"one": "prepared"}


def test_earlier_epochs_come_first(client: SetClient) -> None:
    """A commit says which; after those were carried out or voided it is accepted."""
    one = client.sealed("one", row(b"1"), epoch=1, home=HOME)
    client.sealed("two", row(b"2"), epoch=3, home=HOME)
    last = client.sealed("last", row(b"3"), epoch=7, home=HOME)
    error = error_of(client.commit(last, epoch=7, home=HOME))
    assert error.condition == "half:undecided" and plain(error.info) == {"half_epochs": [1, 3]}
    assert isinstance(client.commit(one, epoch=1, home=HOME), Accepted)
    assert isinstance(client.void("two", epoch=3, home=HOME), Accepted)
    assert isinstance(client.commit(last, epoch=7, home=HOME), Accepted)
    assert states(client) == {} and client.status(3)["decided"] is False


def test_at_most_100_epochs_are_told(client: SetClient) -> None:
    """The lowest ones."""
    for epoch in range(103):
        client.sealed(f"s{epoch}", row(b"1"), epoch=epoch, home=HOME)
    info = plain(error_of(client.commit(epoch=200, home=HOME)).info)
    assert info == {"half_epochs": [*range(100)]}


def test_who_says_otherwise_than_before_is_told(client: SetClient) -> None:
    """Home's decision never changes: other sets mean that a store was restored from a copy."""
    one = client.sealed("one", row(b"1"), home=HOME)
    client.commit(one, home=HOME)
    error = error_of(client.commit(home=HOME))
    assert error.condition == "half:conflict" and "restored" in (error.description or "")
    assert condition_of(client.commit(one, ("two", 1, 1), home=HOME)) == "half:conflict"
    assert isinstance(client.commit(), Accepted)  # without a home it is a repeat as ever
    assert isinstance(client.commit(one, home=HOME), Accepted)


def test_only_the_word_of_its_home_voids_it(client: SetClient) -> None:
    """All or nothing; a set that is not prepared is voided with or without."""
    client.sealed("one", row(b"1"), home=HOME)
    client.sealed("two", row(b"2"))
    assert condition_of(client.void("two", "one")) == "half:prepared"
    assert condition_of(client.void("two", "one", home=OTHER_HOME)) == "half:prepared"
    assert states(client) == {"one": "prepared", "two": "sealed"}
    for _ in range(2):
        assert isinstance(client.void("two", "one", home=HOME), Accepted)
    assert states(client) == {}


def test_a_winner_is_not_voided_by_a_word(client: SetClient) -> None:
    """Whoever asked home wrongly: it was committed here."""
    one = client.sealed("one", row(b"1"), home=HOME)
    client.commit(one, home=HOME)
    assert condition_of(client.void("one", epoch=1, home=HOME)) == "half:conflict"


def test_no_age_ends_it(broker: JumpingBroker, client: SetClient) -> None:
    """It is asked about for ever, and says whose it is; other sets end at their age."""
    check = checker(client.session)
    one = client.sealed("one", row(b"1"), home=HOME)
    client.sealed("plain", row(b"2"))
    broker.jump(4 * 3_600)
    settle_down(broker, client.session)
    assert states(client) == {"one": "prepared"}
    answer(broker, check, receive(check, 1), Accepted())
    for _ in range(3):
        broker.jump(30 * 24 * 3_600)
        (delivery,) = receive(check, 1)
        told = plain(named(delivery.payload))
        assert (told["half_set"], told["half_state"], told["half_home"]) == ("one", "prepared", HOME)
        assert told["half_deadline"] == 2**63 - 1
        answer(broker, check, [delivery], Accepted())
        check.flow(10)
    assert isinstance(client.commit(one, home=HOME), Accepted)


def test_rejected_by_outcome_does_not_end_it(broker: JumpingBroker, client: SetClient) -> None:
    """The check is settled released, and it is asked about again by the schedule."""
    client.sealed("one", row(b"1"), home=HOME)
    check = checker(client.session, by_outcome=True)
    for attempt, wait_s in ((1, 6), (2, 30), (3, 60)):
        broker.jump(wait_s)
        (delivery,) = receive(check, 1)
        assert plain(named(delivery.payload))["half_attempt"] == attempt
        answer(broker, check, [delivery], Rejected())
        assert states(client) == {"one": "prepared"}


def test_an_administrator_may_force_it(
    broker: JumpingBroker, client: SetClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not without `force`; what was forced stands in the log and in the event log."""
    client.sealed("one", row(b"1"), home=HOME)
    (found,) = half_sets(broker)
    assert (found.state, found.home, found.store, found.deadline_ms) == ("prepared", HOME, "", 2**63 - 1)

    async def void(running: Broker, force: bool) -> None:
        await running.void_half_set("g", "p", "one", "ann", "home is lost", force=force)

    with pytest.raises(HalfRefusedByHand, match="half:prepared"):
        broker.call(lambda running: void(running, False))
    assert states(client) == {"one": "prepared"} and "set.forced" not in capsys.readouterr().err
    broker.call(lambda running: void(running, True))
    logged = json.loads(capsys.readouterr().err)
    assert (logged["event"], logged["home"], logged["who"]) == ("set.forced", HOME, "ann")
    assert states(client) == {}
    voided = [event.fields for event in events_of(broker) if event.kind == "set.voided"]
    assert [(each["resolver"], each["reason"]) for each in voided] == [
        ("admin", "by force: ann: home is lost")
    ]


def test_it_is_prepared_after_a_restart(tmp_path: Path) -> None:
    """With its home; and the decision that was carried out still says whose it was."""
    first = JumpingBroker(on_disk(tmp_path))
    with session_to(first) as session:
        client = SetClient(session)
        one = client.sealed("one", row(b"1"), home=HOME)
        two = client.sealed("two", row(b"2"), epoch=2, home=HOME)
        before = client.status()
        assert isinstance(client.commit(one, home=HOME), Accepted)
    first.stop()
    with stopping(JumpingBroker(on_disk(tmp_path), after=first)) as second, session_to(second) as session:
        client = SetClient(session)
        second.jump(5 * 3_600)
        settle_down(second, session)
        after = client.status(1)
        assert (after["log"], after["home"], after["latest_home"]) == (before["log"], HOME, HOME)
        assert states(client) == {"two": "prepared"}
        assert condition_of(client.commit(two, epoch=2)) == "half:prepared"
        assert isinstance(client.commit(two, epoch=2, home=HOME), Accepted)
        assert counts(second, "q")[0] == 2


def test_a_seal_that_was_not_stored_leaves_it_open(broker: JumpingBroker) -> None:
    """With no home; sealed again it is prepared."""
    with session_to(broker) as session:
        client = SetClient(session)
        client.staged("one", row(b"1")).detach()
        broker.faults.refuse_commit()
        assert condition_of(client.seal("one", row(b"1"), home=HOME)) == "amqp:resource-limit-exceeded"
        assert states(client) == {"one": "open"} and half_sets(broker)[0].home == ""
        assert isinstance(client.seal("one", row(b"1"), home=HOME), Accepted)
    nothing_is_held(broker)

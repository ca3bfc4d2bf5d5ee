"""Sets that another broker decides about: prepared here, applied or voided as their coordinator says."""

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

OTHER = "4cdb5b0e-6ee6-4e28-bb40-e0a5b0f9e0a1"
THIRD_STORE = "0d4f3a86-7a0c-4b1c-8f7e-5a5c2c1e2b33"


def states(client: SetClient) -> dict[str, str]:
    """What is staged, by set."""
    return {each["set"]: each["state"] for each in client.status()["sets"]}


def test_a_set_with_a_coordinator_is_prepared(client: SetClient) -> None:
    """It says so, with all that is needed to go on with it; sealed again with the same is accepted."""
    one = client.sealed("one", row(b"1"), coordinator=OTHER)
    found = client.status()["sets"]
    told = {"set": "one", "epoch": 1, "state": "prepared", "count": 1, "checksum": one[2]}
    told["coordinator"] = OTHER
    assert found == [told]
    assert isinstance(client.seal("one", row(b"1"), coordinator=OTHER), Accepted)
    assert condition_of(client.seal("one", row(b"2"), coordinator=OTHER)) == "half:mismatch"
    assert condition_of(client.seal("one", row(b"1"), coordinator=THIRD_STORE)) == "half:prepared"
    assert condition_of(client.seal("one", row(b"1"))) == "half:prepared"
    client.sealed("plain", row(b"2"))
    assert condition_of(client.seal("plain", row(b"2"), coordinator=OTHER)) == "half:sealed"
    assert states(client) == {"one": "prepared", "plain": "sealed"}


def test_its_own_store_is_no_coordinator(client: SetClient) -> None:
    """A broker that is named as coordinator or store of its own sets has them as ever."""
    own = client.status()["store_id"]
    one = client.sealed("one", row(b"1"), coordinator=own)
    two = client.sealed("two", row(b"2"), store=own)
    assert states(client) == {"one": "sealed", "two": "sealed"}
    assert isinstance(client.commit(one, (*two, own), coordinator=own), Accepted)
    found = client.status(1)
    assert "coordinator" not in found and [set(each) for each in found["winners"]] == 2 * [
        {"set", "count", "checksum"}
    ]


def test_a_decision_of_the_coordinator_is_carried_out(broker: JumpingBroker, client: SetClient) -> None:
    """In the order named; what is prepared for this epoch and not named is gone, and so is what is open."""
    one = client.sealed("one", row(b"1"), row(b"2"), coordinator=OTHER)
    two = client.sealed("two", row(b"3"), coordinator=OTHER)
    client.sealed("loser", row(b"4"), coordinator=OTHER)
    client.staged("open", row(b"5"), epoch=0).detach()
    client.sealed("later", row(b"6"), epoch=2, coordinator=OTHER)
    for _ in range(2):
        assert isinstance(client.commit(two, one, coordinator=OTHER), Accepted)
    assert states(client) == {"later": "prepared"}
    found = client.status(1)
    assert (found["coordinator"], found["latest_coordinator"], found["decided"]) == (OTHER, OTHER, True)
    assert [each["set"] for each in found["winners"]] == ["two", "one"]
    got = receive(client.session.attach_receiver("r", "q", credit=10), 3)
    assert bodies(got) == [b"3", b"1", b"2"] and counts(broker, "q")[0] == 3
    decided = [event.fields for event in events_of(broker) if event.kind == "epoch.decided"]
    assert [each["coordinator"] for each in decided] == [OTHER]
    nothing_is_held(broker)


def test_what_the_coordinator_names_has_to_be_prepared_for_it(client: SetClient) -> None:
    """Else nothing happens: a set of another coordinator, a sealed or open one, or one with other figures."""
    one = client.sealed("one", row(b"1"), coordinator=OTHER)
    sealed = client.sealed("sealed", row(b"2"))
    assert condition_of(client.commit(one, sealed, coordinator=OTHER)) == "half:unsealed"
    assert condition_of(client.commit((one[0], 2, one[2]), coordinator=OTHER)) == "half:mismatch"
    assert condition_of(client.commit(one, ("never", 1, 1), coordinator=OTHER)) == "half:unknown-set"
    error = error_of(client.commit(one, coordinator=THIRD_STORE))
    assert error.condition == "half:prepared"
    assert plain(error.info) == {"half_set": "one", "half_epoch": 1, "half_coordinator": OTHER}
    assert condition_of(client.commit((*one, THIRD_STORE), coordinator=OTHER)) == "amqp:invalid-field"
    assert not client.status(1)["decided"] and states(client) == {"one": "prepared", "sealed": "sealed"}
    assert isinstance(client.commit(one, coordinator=OTHER), Accepted)


def test_no_other_commit_voids_a_prepared_set(client: SetClient) -> None:
    """Without a coordinator it is refused, of that epoch and of later ones; earlier epochs are not
    concerned.
    """
    client.sealed("one", row(b"1"), epoch=5, coordinator=OTHER)
    plainly = client.sealed("plain", row(b"2"), epoch=4)
    for epoch in (5, 6):
        assert condition_of(client.commit(epoch=epoch)) == "half:prepared"
    assert isinstance(client.commit(plainly, epoch=4), Accepted)
    assert states(client) == {"one": "prepared"}


def test_earlier_epochs_come_first(client: SetClient) -> None:
    """A commit says which; after those were applied or voided it is accepted."""
    one = client.sealed("one", row(b"1"), epoch=1, coordinator=OTHER)
    client.sealed("two", row(b"2"), epoch=3, coordinator=OTHER)
    last = client.sealed("last", row(b"3"), epoch=7, coordinator=OTHER)
    error = error_of(client.commit(last, epoch=7, coordinator=OTHER))
    assert error.condition == "half:undecided" and plain(error.info) == {"half_epochs": [1, 3]}
    assert isinstance(client.commit(one, epoch=1, coordinator=OTHER), Accepted)
    assert isinstance(client.void("two", epoch=3, coordinator=OTHER), Accepted)
    assert isinstance(client.commit(last, epoch=7, coordinator=OTHER), Accepted)
    assert states(client) == {} and client.status(3)["decided"] is False


def test_at_most_100_epochs_are_told(client: SetClient) -> None:
    """The lowest ones."""
    for epoch in range(103):
        client.sealed(f"s{epoch}", row(b"1"), epoch=epoch, coordinator=OTHER)
    info = plain(error_of(client.commit(epoch=200, coordinator=OTHER)).info)
    assert info == {"half_epochs": [*range(100)]}


def test_who_says_otherwise_than_before_is_told(client: SetClient) -> None:
    """The coordinator's decision never changes: other sets mean that a store was restored from a copy."""
    one = client.sealed("one", row(b"1"), coordinator=OTHER)
    client.commit(one, coordinator=OTHER)
    error = error_of(client.commit(coordinator=OTHER))
    assert error.condition == "half:conflict" and "restored" in (error.description or "")
    assert condition_of(client.commit(one, ("two", 1, 1), coordinator=OTHER)) == "half:conflict"
    assert isinstance(client.commit(), Accepted)  # without a coordinator it is a repeat as ever
    assert isinstance(client.commit(one, coordinator=OTHER), Accepted)


def test_only_the_word_of_its_coordinator_voids_it(client: SetClient) -> None:
    """All or nothing; a set that is not prepared is voided with or without."""
    client.sealed("one", row(b"1"), coordinator=OTHER)
    client.sealed("two", row(b"2"))
    assert condition_of(client.void("two", "one")) == "half:prepared"
    assert condition_of(client.void("two", "one", coordinator=THIRD_STORE)) == "half:prepared"
    assert states(client) == {"one": "prepared", "two": "sealed"}
    for _ in range(2):
        assert isinstance(client.void("two", "one", coordinator=OTHER), Accepted)
    assert states(client) == {}


def test_a_winner_is_not_voided_by_a_word(client: SetClient) -> None:
    """Whoever asked coordinator wrongly: it was committed here."""
    one = client.sealed("one", row(b"1"), coordinator=OTHER)
    client.commit(one, coordinator=OTHER)
    assert condition_of(client.void("one", epoch=1, coordinator=OTHER)) == "half:conflict"


def test_no_age_ends_it(broker: JumpingBroker, client: SetClient) -> None:
    """It is asked about for ever, and says whose it is; other sets end at their age."""
    check = checker(client.session)
    one = client.sealed("one", row(b"1"), coordinator=OTHER)
    client.sealed("plain", row(b"2"))
    broker.jump(4 * 3_600)
    settle_down(broker, client.session)
    assert states(client) == {"one": "prepared"}
    answer(broker, check, receive(check, 1), Accepted())
    for _ in range(3):
        broker.jump(30 * 24 * 3_600)
        (delivery,) = receive(check, 1)
        told = plain(named(delivery.payload))
        assert (told["half_set"], told["half_state"], told["half_coordinator"]) == ("one", "prepared", OTHER)
        assert told["half_deadline"] == 2**63 - 1
        answer(broker, check, [delivery], Accepted())
        check.flow(10)
    assert isinstance(client.commit(one, coordinator=OTHER), Accepted)


def test_rejected_by_outcome_does_not_end_it(broker: JumpingBroker, client: SetClient) -> None:
    """The check is settled released, and it is asked about again by the schedule."""
    client.sealed("one", row(b"1"), coordinator=OTHER)
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
    """Not without `force`; what was forced stands in the log and in the journal."""
    client.sealed("one", row(b"1"), coordinator=OTHER)
    (found,) = half_sets(broker)
    assert (found.state, found.coordinator, found.store) == ("prepared", OTHER, "")
    assert found.deadline_ms == 2**63 - 1

    async def void(running: Broker, force: bool) -> None:
        await running.void_half_set("g", "p", "one", "ann", "coordinator is lost", force=force)

    with pytest.raises(HalfRefusedByHand, match="half:prepared"):
        broker.call(lambda running: void(running, False))
    assert states(client) == {"one": "prepared"} and "set.forced" not in capsys.readouterr().err
    broker.call(lambda running: void(running, True))
    logged = json.loads(capsys.readouterr().err)
    assert (logged["event"], logged["coordinator"], logged["who"]) == ("set.forced", OTHER, "ann")
    assert states(client) == {}
    voided = [event.fields for event in events_of(broker) if event.kind == "set.voided"]
    assert [(each["resolver"], each["reason"]) for each in voided] == [
        ("admin", "by force: ann: coordinator is lost")
    ]


def test_it_is_prepared_after_a_restart(tmp_path: Path) -> None:
    """With its coordinator; and the decision that was applied still says whose it was."""
    first = JumpingBroker(on_disk(tmp_path))
    with session_to(first) as session:
        client = SetClient(session)
        one = client.sealed("one", row(b"1"), coordinator=OTHER)
        two = client.sealed("two", row(b"2"), epoch=2, coordinator=OTHER)
        before = client.status()
        assert isinstance(client.commit(one, coordinator=OTHER), Accepted)
    first.stop()
    with stopping(JumpingBroker(on_disk(tmp_path), after=first)) as second, session_to(second) as session:
        client = SetClient(session)
        second.jump(5 * 3_600)
        settle_down(second, session)
        after = client.status(1)
        assert after["store_id"] == before["store_id"]
        assert (after["coordinator"], after["latest_coordinator"]) == (OTHER, OTHER)
        assert states(client) == {"two": "prepared"}
        assert condition_of(client.commit(two, epoch=2)) == "half:prepared"
        assert isinstance(client.commit(two, epoch=2, coordinator=OTHER), Accepted)
        assert counts(second, "q")[0] == 2


def test_a_seal_that_was_not_stored_leaves_it_open(broker: JumpingBroker) -> None:
    """With no coordinator; sealed again it is prepared."""
    with session_to(broker) as session:
        client = SetClient(session)
        client.staged("one", row(b"1")).detach()
        broker.faults.refuse_commit()
        sealed = client.seal("one", row(b"1"), coordinator=OTHER)
        assert condition_of(sealed) == "amqp:resource-limit-exceeded"
        assert states(client) == {"one": "open"} and half_sets(broker)[0].coordinator == ""
        assert isinstance(client.seal("one", row(b"1"), coordinator=OTHER), Accepted)
    nothing_is_held(broker)

"""Sets of two stores: prepared here and decided elsewhere, or enlisted and decided here."""

from __future__ import annotations

from pathlib import Path

import pytest

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerLimits
from amqp_broker.frames import Accepted, Rejected, plain_value
from amqp_broker.half_sets import staged_sets
from amqp_broker.halves.administration import HalfRefusedByHand
from amqp_broker.testing import memory_config
from tests.support.broker_clients import (
    bodies,
    condition_of,
    counts,
    error_of,
    receive,
    session_to,
    settle_down,
)
from tests.support.half_set_groups import nothing_is_held
from tests.support.half_sets import SetClient, checksum, half_sets, row, seal_of
from tests.support.halves import answer, checker, events_of, named, tell
from tests.support.jumping_broker import JumpingBroker, Start, on_disk

OTHER = "4cdb5b0e-6ee6-4e28-bb40-e0a5b0f9e0a1"
THIRD_STORE = "0d4f3a86-7a0c-4b1c-8f7e-5a5c2c1e2b33"


def states(client: SetClient) -> dict[str, str]:
    """What is staged, by set."""
    return {each["set"]: each["state"] for each in client.status()["sets"]}


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


def test_at_most_100_epochs_are_told(client: SetClient) -> None:
    """The lowest ones."""
    for epoch in range(103):
        client.sealed(f"s{epoch}", row(b"1"), epoch=epoch, coordinator=OTHER)
    info = plain_value(error_of(client.commit(epoch=200, coordinator=OTHER)).info)
    assert info == {"half_epochs": [*range(100)]}


def test_who_says_otherwise_than_before_is_told(client: SetClient) -> None:
    """The coordinator's decision never changes: other sets mean that a store was restored from a copy."""
    one = client.sealed("one", row(b"1"), coordinator=OTHER)
    client.commit(one, coordinator=OTHER)
    error = error_of(client.commit(coordinator=OTHER))
    assert error.condition == "half:conflict" and "restored" in (error.description or "")
    assert condition_of(client.commit(one, ("two", 1, 1), coordinator=OTHER)) == "half:conflict"
    assert condition_of(client.void("one", epoch=1, coordinator=OTHER)) == "half:conflict"
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
        told = plain_value(named(delivery.payload))
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
        assert plain_value(named(delivery.payload))["half_attempt"] == attempt
        answer(broker, check, [delivery], Rejected())
        assert states(client) == {"one": "prepared"}


def test_an_administrator_may_force_it(
    broker: JumpingBroker, client: SetClient, caplog: pytest.LogCaptureFixture
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
    assert states(client) == {"one": "prepared"} and "set.forced" not in caplog.text
    broker.call(lambda running: void(running, True))
    (logged,) = [record.fields for record in caplog.records if record.event == "set.forced"]  # type: ignore[attr-defined]
    assert (logged["coordinator"], logged["who"]) == (OTHER, "ann")
    assert states(client) == {}
    voided = [event.fields for event in events_of(broker) if event.kind == "set.voided"]
    assert [(each["resolver"], each["reason"]) for each in voided] == [
        ("admin", "by force: ann: coordinator is lost")
    ]


def test_it_is_prepared_after_a_restart(start: Start, tmp_path: Path) -> None:
    """With its coordinator; and the decision that was applied still says whose it was."""
    first = start(on_disk(tmp_path))
    with session_to(first) as session:
        client = SetClient(session)
        one = client.sealed("one", row(b"1"), coordinator=OTHER)
        two = client.sealed("two", row(b"2"), epoch=2, coordinator=OTHER)
        before = client.status()
        assert isinstance(client.commit(one, coordinator=OTHER), Accepted)
    second = start(first.config, first)
    with session_to(second) as session:
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


def test_a_seal_that_was_not_stored_leaves_it_open(broker: JumpingBroker, client: SetClient) -> None:
    """With no coordinator; sealed again it is prepared."""
    client.staged("one", row(b"1")).detach()
    broker.faults.refuse_commit()
    sealed = client.seal("one", row(b"1"), coordinator=OTHER)
    assert condition_of(sealed) == "amqp:resource-limit-exceeded"
    assert states(client) == {"one": "open"} and half_sets(broker)[0].coordinator == ""
    assert isinstance(client.seal("one", row(b"1"), coordinator=OTHER), Accepted)
    nothing_is_held(broker)


# Enlisted: another broker has the messages, the decision is here


FAR = ("far", 7, 77)


def enlist(
    client: SetClient, set_id: str = "far", count: int = 7, total: int = 77, *, epoch: int = 1,
    store: str = OTHER,
) -> object:  # fmt: skip
    """Seal a set whose messages are elsewhere; the outcome."""
    return tell(client.resolve, seal_of(set_id, count, total, epoch=epoch, store=store))


def staged(client: SetClient) -> set[str]:
    """The sets that `status` tells."""
    return {each["set"] for each in client.status()["sets"]}


def test_a_set_of_another_store_is_sealed_here(broker: JumpingBroker, client: SetClient) -> None:
    """Nothing of it is here; enlisted again with the same is accepted, with anything else it is not."""
    for _ in range(2):
        assert isinstance(enlist(client), Accepted)
    told = {"set": "far", "epoch": 1, "state": "sealed", "count": 7, "checksum": 77, "store": OTHER}
    assert client.status()["sets"] == [told]
    for other in ({"count": 8}, {"total": 78}, {"store": THIRD_STORE}):
        assert condition_of(enlist(client, **other)) == "half:mismatch"
    assert condition_of(enlist(client, epoch=2)) == "amqp:not-allowed"
    assert condition_of(tell(client.resolve, seal_of(*FAR))) == "half:mismatch"
    client.staged("near", row(b"1")).detach()
    assert condition_of(enlist(client, "near", 1, checksum(row(b"1")))) == "half:mismatch"
    (found,) = [each for each in half_sets(broker) if each.set_id == "far"]
    assert (found.store, found.coordinator, found.count, found.byte_count) == (OTHER, "", 7, 0)
    assert found.destinations == {}
    bad = seal_of("both", 1, 1, store=OTHER, coordinator=THIRD_STORE)
    assert condition_of(tell(client.resolve, bad)) == "amqp:invalid-field"
    assert condition_of(tell(client.resolve, seal_of("bad", 1, 1, store="a/b"))) == "amqp:invalid-field"


def test_it_wins_like_any_other(broker: JumpingBroker, client: SetClient) -> None:
    """The messages of those that are here are there at once; `status` says where the others are."""
    assert isinstance(enlist(client), Accepted)
    assert isinstance(enlist(client, "loser"), Accepted)
    assert isinstance(enlist(client, "later", epoch=2), Accepted)
    one, two = client.sealed("one", row(b"1")), client.sealed("two", row(b"2"))
    for wrong in (FAR, (*FAR, THIRD_STORE), ("far", 7, 78, OTHER), (*one, OTHER)):
        assert condition_of(client.commit(wrong)) == "half:mismatch"
    for _ in range(2):
        assert isinstance(client.commit(two, (*FAR, OTHER), one), Accepted)
    winners = [
        {"set": "two", "count": 1, "checksum": two[2]},
        {"set": "far", "count": 7, "checksum": 77, "store": OTHER},
        {"set": "one", "count": 1, "checksum": one[2]},
    ]
    found = client.status(1)
    assert found["winners"] == winners and "coordinator" not in found
    assert staged(client) == {"later"}
    sealed = [event.fields for event in events_of(broker) if event.kind == "set.sealed"]
    assert [(each["count"], each.get("store")) for each in sealed] == [*[(0, OTHER)] * 3, *[(1, None)] * 2]
    assert bodies(receive(client.session.attach_receiver("r", "q", credit=10), 2)) == [b"2", b"1"]
    assert condition_of(enlist(client)) == "half:decided"
    assert isinstance(client.commit(("later", 7, 77, OTHER), epoch=2), Accepted)  # nothing of it is here
    assert client.status(2)["decided"] is True and not half_sets(broker)
    assert condition_of(enlist(client, epoch=0)) == "half:stale-epoch"
    nothing_is_held(broker)


def test_it_can_be_voided_plainly(broker: JumpingBroker, client: SetClient) -> None:
    """By its producer and by outcome, which is no word for its store: it can be enlisted again."""
    enlist(client)
    assert isinstance(client.void("far"), Accepted)
    assert isinstance(enlist(client), Accepted)
    check = checker(client.session, by_outcome=True)
    broker.jump(6)
    answer(broker, check, receive(check, 1), Rejected())
    assert not half_sets(broker) and isinstance(enlist(client), Accepted)


# The word that a set never wins


@pytest.mark.parametrize("there", [False, True])
def test_a_word_is_kept(broker: JumpingBroker, client: SetClient, there: bool) -> None:
    """Also about a set that was never heard of: what comes late is refused, and no commit can name it."""
    if there:
        enlist(client)
    for _ in range(2):
        assert isinstance(client.void("far", epoch=1, store=OTHER), Accepted)
    assert staged(client) == set()
    assert condition_of(enlist(client)) == "half:voided"
    assert condition_of(client.commit((*FAR, OTHER))) == "half:unknown-set"
    assert isinstance(client.void("far", epoch=1), Accepted)
    assert condition_of(enlist(client)) == "half:voided"
    assert [(each.set_id, each.state) for each in half_sets(broker)] == [("far", "voided")]
    assert isinstance(client.commit(epoch=1), Accepted)
    assert not half_sets(broker) and condition_of(enlist(client)) == "half:decided"
    voided = [event.fields["set_id"] for event in events_of(broker) if event.kind == "set.voided"]
    assert voided == ["far"] * there
    nothing_is_held(broker)


def test_a_word_is_kept_for_the_maximum_age(broker: JumpingBroker, client: SetClient) -> None:
    """From the vote on; nobody is asked about it."""
    enlist(client)
    broker.jump(2 * 3_600)
    assert isinstance(client.void("far", "never", epoch=1, store=OTHER), Accepted)
    check = checker(client.session)
    broker.jump(4 * 3_600 - 60)
    settle_down(broker, client.session)
    assert condition_of(enlist(client)) == "half:voided" and not check.deliveries
    broker.jump(120)
    settle_down(broker, client.session)
    assert not half_sets(broker) and not check.deliveries


def test_a_word_is_kept_over_a_restart(start: Start, tmp_path: Path) -> None:
    """So are enlisted sets, and the stores of winners."""
    first = start(on_disk(tmp_path))
    with session_to(first) as session:
        client = SetClient(session)
        for name in ("voted", "stays", "wins"):
            assert isinstance(enlist(client, name, epoch=1 + (name != "wins")), Accepted)
        assert isinstance(client.commit(("wins", 7, 77, OTHER)), Accepted)
        first.jump(3_600)
        assert isinstance(client.void("voted", "never", epoch=2, store=OTHER), Accepted)
    second = start(first.config, first)
    with session_to(second) as session:
        client = SetClient(session)
        assert {each.set_id: each.state for each in half_sets(second)} == {
            "voted": "voided",
            "never": "voided",
            "stays": "sealed",
        }
        assert condition_of(enlist(client, "voted", epoch=2)) == "half:voided"
        assert condition_of(enlist(client, "never", epoch=2)) == "half:voided"
        assert client.status(1)["winners"][0]["store"] == OTHER
        told = {"set": "stays", "epoch": 2, "state": "sealed", "count": 7, "checksum": 77, "store": OTHER}
        assert client.status()["sets"] == [told]
        second.jump(3 * 3_600 + 1_800)  # the word is younger than what was enlisted
        settle_down(second, session)
        assert {each.set_id for each in half_sets(second)} == {"voted", "never"}
        assert isinstance(client.commit(epoch=2), Accepted) and not half_sets(second)


def test_no_word_about_a_winner(client: SetClient) -> None:
    """All or nothing; of a decided epoch a loser is given up anyway, and of a passed one everything."""
    enlist(client)
    enlist(client, "loser")
    client.commit((*FAR, OTHER), epoch=1)
    client.commit(epoch=3)
    assert condition_of(client.void("loser", "far", epoch=1, store=OTHER)) == "half:conflict"
    assert isinstance(client.void("loser", "never", epoch=1, store=OTHER), Accepted)
    assert isinstance(client.void("loser", epoch=2, store=OTHER), Accepted)


def test_no_word_about_what_may_be_forgotten(client: SetClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the oldest decision of as many as are kept nobody knows any more who won."""
    monkeypatch.setattr(staged_sets, "DECISIONS_SEARCHED", 3)
    for epoch in (5, 7, 9):
        client.commit(epoch=epoch)
    assert isinstance(client.void("far", epoch=6, store=OTHER), Accepted)
    assert condition_of(client.void("far", epoch=4, store=OTHER)) == "half:stale-epoch"
    assert isinstance(client.void("far", epoch=4), Accepted)  # not a word, and as ever


def test_a_word_is_about_sets_of_one_other_store(client: SetClient) -> None:
    """Not about what is here, or in a third one, or of another epoch; and it needs an epoch."""
    client.sealed("near", row(b"1"))
    client.staged("open", row(b"1")).detach()
    enlist(client)
    for set_id in ("near", "open"):
        assert condition_of(client.void("far", set_id, epoch=1, store=OTHER)) == "half:mismatch"
    assert condition_of(client.void("far", epoch=1, store=THIRD_STORE)) == "half:mismatch"
    assert condition_of(client.void("far", epoch=2, store=OTHER)) == "amqp:not-allowed"
    assert condition_of(client.void("far", store=OTHER)) == "amqp:invalid-field"
    assert staged(client) == {"near", "open", "far"}


def test_enlisted_sets_and_words_are_bounded(start: Start) -> None:
    """They count as sets."""
    limits = BrokerLimits(idle_time_out_ms=2**32 - 1, max_half_sets=2)
    full = "amqp:resource-limit-exceeded"
    broker = start(memory_config(limits=limits))
    with session_to(broker) as session:
        client = SetClient(session)
        assert isinstance(enlist(client), Accepted)
        assert condition_of(client.void("a", "b", epoch=1, store=OTHER)) == full
        assert isinstance(enlist(client, "two"), Accepted)
        assert condition_of(enlist(client, "three")) == full
        assert isinstance(client.void("far", "two", epoch=1, store=OTHER), Accepted)
        assert condition_of(enlist(client, "three")) == full
        nothing_is_held(broker)


def test_what_was_not_stored_did_not_happen(broker: JumpingBroker, client: SetClient) -> None:
    """An enlisting, and a word about sets that are there and others; each works the next time."""
    full = "amqp:resource-limit-exceeded"
    broker.faults.refuse_commit()
    assert condition_of(enlist(client)) == full
    assert not half_sets(broker) and isinstance(enlist(client), Accepted)
    broker.faults.refuse_commit()
    assert condition_of(client.void("far", "never", epoch=1, store=OTHER)) == full
    assert [(each.set_id, each.state) for each in half_sets(broker)] == [("far", "sealed")]
    nothing_is_held(broker)
    assert isinstance(client.commit((*FAR, OTHER)), Accepted)

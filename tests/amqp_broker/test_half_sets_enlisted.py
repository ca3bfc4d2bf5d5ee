"""Sets whose messages another broker has: enlisted here, decided here, and the word that they never win."""

from __future__ import annotations

from pathlib import Path

import pytest

from amqp_broker.configuration import BrokerLimits
from amqp_broker.frames import Accepted, Rejected
from amqp_broker.half_sets import half_sets as half_sets_module
from amqp_broker.testing import memory_config
from tests.support.broker_clients import bodies, condition_of, plain, receive, session_to, settle_down
from tests.support.half_set_groups import nothing_is_held
from tests.support.half_sets import SetClient, checksum, half_sets, row, seal_of
from tests.support.halves import answer, checker, events_of, named, tell
from tests.support.jumping_broker import JumpingBroker, on_disk, stopping

SHARD = "4cdb5b0e-6ee6-4e28-bb40-e0a5b0f9e0a1"
OTHER_SHARD = "0d4f3a86-7a0c-4b1c-8f7e-5a5c2c1e2b33"
FAR = ("far", 7, 77)


def enlist(
    client: SetClient, set_id: str = "far", count: int = 7, total: int = 77, *, epoch: int = 1,
    store: str = SHARD,
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
    told = {"set": "far", "epoch": 1, "state": "sealed", "count": 7, "checksum": 77, "store": SHARD}
    assert client.status()["sets"] == [told]
    for other in ({"count": 8}, {"total": 78}, {"store": OTHER_SHARD}):
        assert condition_of(enlist(client, **other)) == "half:mismatch"
    assert condition_of(enlist(client, epoch=2)) == "amqp:not-allowed"
    assert condition_of(tell(client.resolve, seal_of(*FAR))) == "half:mismatch"
    client.staged("near", row(b"1")).detach()
    assert condition_of(enlist(client, "near", 1, checksum(row(b"1")))) == "half:mismatch"
    (found,) = [each for each in half_sets(broker) if each.set_id == "far"]
    assert (found.store, found.coordinator, found.count, found.byte_count) == (SHARD, "", 7, 0)
    assert found.destinations == {}
    bad = seal_of("both", 1, 1, store=SHARD, coordinator=OTHER_SHARD)
    assert condition_of(tell(client.resolve, bad)) == "amqp:invalid-field"
    assert condition_of(tell(client.resolve, seal_of("bad", 1, 1, store="a/b"))) == "amqp:invalid-field"


def test_it_wins_like_any_other(broker: JumpingBroker, client: SetClient) -> None:
    """The messages of those that are here are there at once; `status` says where the others are."""
    assert isinstance(enlist(client), Accepted)
    assert isinstance(enlist(client, "loser"), Accepted)
    assert isinstance(enlist(client, "later", epoch=2), Accepted)
    one, two = client.sealed("one", row(b"1")), client.sealed("two", row(b"2"))
    for wrong in (FAR, (*FAR, OTHER_SHARD), ("far", 7, 78, SHARD), (*one, SHARD)):
        assert condition_of(client.commit(wrong)) == "half:mismatch"
    for _ in range(2):
        assert isinstance(client.commit(two, (*FAR, SHARD), one), Accepted)
    winners = [
        {"set": "two", "count": 1, "checksum": two[2]},
        {"set": "far", "count": 7, "checksum": 77, "store": SHARD},
        {"set": "one", "count": 1, "checksum": one[2]},
    ]
    found = client.status(1)
    assert found["winners"] == winners and "coordinator" not in found
    assert staged(client) == {"later"}
    sealed = [event.fields for event in events_of(broker) if event.kind == "set.sealed"]
    assert [(each["count"], each.get("store")) for each in sealed] == [*[(0, SHARD)] * 3, *[(1, None)] * 2]
    assert bodies(receive(client.session.attach_receiver("r", "q", credit=10), 2)) == [b"2", b"1"]
    assert condition_of(enlist(client)) == "half:decided"
    nothing_is_held(broker)


def test_an_epoch_of_other_stores_only(broker: JumpingBroker, client: SetClient) -> None:
    """Nothing becomes available here, and the decision is here."""
    enlist(client)
    assert isinstance(client.commit((*FAR, SHARD)), Accepted)
    assert client.status(1)["decided"] is True and not half_sets(broker)


def test_epochs_that_take_nothing_take_no_other_stores_sets(client: SetClient) -> None:
    """Decided, or passed."""
    client.commit(epoch=7)
    assert condition_of(enlist(client, epoch=7)) == "half:decided"
    assert condition_of(enlist(client, epoch=6)) == "half:stale-epoch"


def test_it_is_asked_about_and_ends_at_its_age(broker: JumpingBroker, client: SetClient) -> None:
    """As any sealed set; the check says where it is."""
    check = checker(client.session)
    enlist(client)
    broker.jump(6)
    (delivery,) = receive(check, 1)
    told = plain(named(delivery.payload))
    assert (told["half_state"], told["half_store"], told["half_count"]) == ("sealed", SHARD, 7)
    answer(broker, check, [delivery], Accepted())
    broker.jump(4 * 3_600)
    settle_down(broker, client.session)
    assert staged(client) == set()
    assert condition_of(client.commit((*FAR, SHARD))) == "half:unknown-set"


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
        assert isinstance(client.void("far", epoch=1, store=SHARD), Accepted)
    assert staged(client) == set()
    assert condition_of(enlist(client)) == "half:voided"
    assert condition_of(client.commit((*FAR, SHARD))) == "half:unknown-set"
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
    assert isinstance(client.void("far", "never", epoch=1, store=SHARD), Accepted)
    check = checker(client.session)
    broker.jump(4 * 3_600 - 60)
    settle_down(broker, client.session)
    assert condition_of(enlist(client)) == "half:voided" and not check.deliveries
    broker.jump(120)
    settle_down(broker, client.session)
    assert not half_sets(broker) and not check.deliveries


def test_a_word_is_kept_over_a_restart(tmp_path: Path) -> None:
    """So are enlisted sets, and the stores of winners."""
    first = JumpingBroker(on_disk(tmp_path))
    with session_to(first) as session:
        client = SetClient(session)
        for name in ("voted", "stays", "wins"):
            assert isinstance(enlist(client, name, epoch=1 + (name != "wins")), Accepted)
        assert isinstance(client.commit(("wins", 7, 77, SHARD)), Accepted)
        first.jump(3_600)
        assert isinstance(client.void("voted", "never", epoch=2, store=SHARD), Accepted)
    first.stop()
    with stopping(JumpingBroker(on_disk(tmp_path), after=first)) as second, session_to(second) as session:
        client = SetClient(session)
        assert {each.set_id: each.state for each in half_sets(second)} == {
            "voted": "voided",
            "never": "voided",
            "stays": "sealed",
        }
        assert condition_of(enlist(client, "voted", epoch=2)) == "half:voided"
        assert condition_of(enlist(client, "never", epoch=2)) == "half:voided"
        assert client.status(1)["winners"][0]["store"] == SHARD
        told = {"set": "stays", "epoch": 2, "state": "sealed", "count": 7, "checksum": 77, "store": SHARD}
        assert client.status()["sets"] == [told]
        second.jump(3 * 3_600 + 1_800)  # the word is younger than what was enlisted
        settle_down(second, session)
        assert {each.set_id for each in half_sets(second)} == {"voted", "never"}
        assert isinstance(client.commit(epoch=2), Accepted) and not half_sets(second)


def test_no_word_about_a_winner(client: SetClient) -> None:
    """All or nothing; of a decided epoch a loser is given up anyway, and of a passed one everything."""
    enlist(client)
    enlist(client, "loser")
    client.commit((*FAR, SHARD), epoch=1)
    client.commit(epoch=3)
    assert condition_of(client.void("loser", "far", epoch=1, store=SHARD)) == "half:conflict"
    assert isinstance(client.void("loser", "never", epoch=1, store=SHARD), Accepted)
    assert isinstance(client.void("loser", epoch=2, store=SHARD), Accepted)


def test_no_word_about_what_may_be_forgotten(client: SetClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the oldest decision of as many as are kept nobody knows any more who won."""
    monkeypatch.setattr(half_sets_module, "DECISIONS_SEARCHED", 3)
    for epoch in (5, 7, 9):
        client.commit(epoch=epoch)
    assert isinstance(client.void("far", epoch=6, store=SHARD), Accepted)
    assert condition_of(client.void("far", epoch=4, store=SHARD)) == "half:stale-epoch"
    assert isinstance(client.void("far", epoch=4), Accepted)  # not a word, and as ever


def test_a_word_is_about_sets_of_one_other_store(client: SetClient) -> None:
    """Not about what is here, or in a third one, or of another epoch; and it needs an epoch."""
    client.sealed("near", row(b"1"))
    client.staged("open", row(b"1")).detach()
    enlist(client)
    for set_id in ("near", "open"):
        assert condition_of(client.void("far", set_id, epoch=1, store=SHARD)) == "half:mismatch"
    assert condition_of(client.void("far", epoch=1, store=OTHER_SHARD)) == "half:mismatch"
    assert condition_of(client.void("far", epoch=2, store=SHARD)) == "amqp:not-allowed"
    assert condition_of(client.void("far", store=SHARD)) == "amqp:invalid-field"
    assert staged(client) == {"near", "open", "far"}


def test_enlisted_sets_and_words_are_bounded() -> None:
    """They count as sets."""
    limits = BrokerLimits(idle_time_out_ms=2**32 - 1, max_half_sets=2)
    full = "amqp:resource-limit-exceeded"
    with stopping(JumpingBroker(memory_config(limits=limits))) as broker, session_to(broker) as session:
        client = SetClient(session)
        assert isinstance(enlist(client), Accepted)
        assert condition_of(client.void("a", "b", epoch=1, store=SHARD)) == full
        assert isinstance(enlist(client, "two"), Accepted)
        assert condition_of(enlist(client, "three")) == full
        assert isinstance(client.void("far", "two", epoch=1, store=SHARD), Accepted)
        assert condition_of(enlist(client, "three")) == full
        nothing_is_held(broker)


def test_what_was_not_stored_did_not_happen(broker: JumpingBroker, client: SetClient) -> None:
    """An enlisting, and a word about sets that are there and others; each works the next time."""
    full = "amqp:resource-limit-exceeded"
    broker.faults.refuse_commit()
    assert condition_of(enlist(client)) == full
    assert not half_sets(broker) and isinstance(enlist(client), Accepted)
    broker.faults.refuse_commit()
    assert condition_of(client.void("far", "never", epoch=1, store=SHARD)) == full
    assert [(each.set_id, each.state) for each in half_sets(broker)] == [("far", "sealed")]
    nothing_is_held(broker)
    assert isinstance(client.commit((*FAR, SHARD)), Accepted)

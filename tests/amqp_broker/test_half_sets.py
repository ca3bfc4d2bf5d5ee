"""Sets of half messages: stage, seal, commit an epoch, void, ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from amqp_broker.frames import Accepted, Message
from amqp_broker.testing.peer import PeerError
from tests.support.broker_clients import (
    bodies,
    browse,
    condition_of,
    counts,
    error_of,
    plain,
    receive,
    send,
    session_to,
)
from tests.support.half_sets import SetClient, checksum, ended, row, stage, stager
from tests.support.jumping_broker import EPOCH_MS, JumpingBroker


@pytest.fixture
def other(broker: JumpingBroker) -> Iterator[SetClient]:
    """Another one, on a connection of its own: an error that it is told ends what it does."""
    with session_to(broker, "other") as session:
        yield SetClient(session)


def test_what_is_staged_is_seen_after_the_commit_of_its_epoch_and_never_before(client: SetClient) -> None:
    """Sets in the order named, messages in the order staged, octet for octet; browsers too."""
    rows = [row(b"%d" % number, message_id=f"m{number}") for number in range(6)]
    browser = browse(client.session, "b", "q", 10)
    one = client.sealed("one", *rows[:3])
    two = client.sealed("two", *rows[3:])
    client.status()
    assert not browser.deliveries
    assert isinstance(client.commit(two, one), Accepted)
    assert bodies(receive(browser, 6)) == [b"3", b"4", b"5", b"0", b"1", b"2"]
    found = receive(client.session.attach_receiver("r", "q", credit=10), 6)
    assert bodies(found) == [b"3", b"4", b"5", b"0", b"1", b"2"]
    assert [each.payload[-len(rows[0]) :] for each in found] == [*rows[3:], *rows[:3]]
    header = Message(found[0].payload).header
    assert header.durable and header.first_acquirer


def test_a_consumer_that_waits_is_woken_by_the_commit(client: SetClient) -> None:
    """Nothing comes before it, and ordinary messages keep their places around it."""
    receiver = client.session.attach_receiver("r", "q", credit=10)
    ordinary = client.session.attach_sender("ordinary", "q")
    winner = client.sealed("one", row(b"2"), row(b"3"))
    send(ordinary, b"1")
    assert bodies(receive(receiver, 1)) == [b"1"]
    client.commit(winner)
    send(ordinary, b"4", durable=True)
    assert bodies(receive(receiver, 3)) == [b"2", b"3", b"4"]


def test_a_repeated_commit_is_accepted_and_delivers_once(broker: JumpingBroker, client: SetClient) -> None:
    """What was decided stands, whatever the repeat names: a lost reply, a driver that runs again."""
    winner = client.sealed("one", row(b"1"))
    for _ in range(3):
        assert isinstance(client.commit(winner), Accepted)
    assert isinstance(client.commit(), Accepted)
    assert isinstance(client.commit(("other", 7, 7)), Accepted)
    assert counts(broker, "q")[0] == 1


def test_what_a_commit_names_has_to_be_there_as_it_says(broker: JumpingBroker, client: SetClient) -> None:
    """Else nothing of it happens, and the epoch can still be committed."""
    good = client.sealed("good", row(b"1"))
    client.staged("open", row(b"2")).detach()
    other = client.sealed("other", row(b"3"), epoch=2)
    name, count, total = good
    for bad, condition in (
        (("never", 1, 1), "half:unknown-set"),
        (other, "half:unknown-set"),
        (("open", 1, checksum(row(b"2"))), "half:unsealed"),
        ((name, count + 1, total), "half:mismatch"),
        ((name, count, total + 1), "half:mismatch"),
    ):
        named = (good, bad) if bad[0] != name else (bad,)
        assert condition_of(client.commit(*named)) == condition
        assert counts(broker, "q") == (0, 0)
    assert condition_of(client.commit(good, good)) == "amqp:invalid-field"
    assert client.status(1)["decided"] is False
    assert isinstance(client.commit(good), Accepted)
    assert counts(broker, "q")[0] == 1
    assert client.status()["sets"] == [{"set": "other", "epoch": 2, "state": "sealed", "count": 1}]


def test_epochs_are_decided_in_their_order(client: SetClient) -> None:
    """Below the latest decided one nothing is staged, sealed or committed; gaps are allowed."""
    assert isinstance(client.commit(epoch=7), Accepted)
    assert condition_of(client.commit(epoch=5)) == "half:stale-epoch"
    assert condition_of(client.seal("one", row(b"1"), epoch=5)) == "half:stale-epoch"
    with pytest.raises(PeerError, match="half:stale-epoch"):
        stager(client.session, epoch=5)
    assert condition_of(client.seal("one", row(b"1"), epoch=7)) == "half:decided"
    with pytest.raises(PeerError, match="half:decided"):
        stager(client.session, epoch=7)
    assert isinstance(client.commit(epoch=9), Accepted)
    assert client.status()["latest"] == 9


def test_the_commit_of_an_epoch_voids_all_other_sets_up_to_it(
    broker: JumpingBroker, client: SetClient, other: SetClient
) -> None:
    """Sealed or open, of this epoch and of earlier ones; later ones stay, and other producers' sets."""
    earlier = client.sealed("earlier", row(b"1"), epoch=1)
    loser = client.sealed("loser", row(b"2"), epoch=2)
    late = other.staged("open", row(b"3"), epoch=2)
    client.sealed("later", row(b"4"), epoch=3)
    foreign = stager(client.session, "foreign", producer="other")
    stage(foreign, row(b"5"))
    winner = client.sealed("winner", row(b"6"), epoch=2)
    assert isinstance(client.commit(winner, epoch=2), Accepted)
    assert [each["set"] for each in client.status()["sets"]] == ["later"]
    assert [each["set"] for each in client.status(producer="other")["sets"]] == ["foreign"]
    ended(late, "half:decided")
    assert isinstance(client.void("loser", "earlier", epoch=1), Accepted)
    assert condition_of(client.commit(earlier, epoch=1)) == "half:stale-epoch"
    assert isinstance(client.commit(loser, epoch=2), Accepted)  # decided: nothing comes of it
    assert counts(broker, "q")[0] == 1


def test_an_epoch_without_sets_is_decided(client: SetClient) -> None:
    """A batch without rows is a batch."""
    assert isinstance(client.commit(epoch=1), Accepted)
    found = client.status(1)
    assert found["decided"] is True and found["winners"] == [] and found["latest"] == 1


def test_a_set_is_sealed_with_what_is_in_it(client: SetClient) -> None:
    """A mismatch says both; sealed again with the same is accepted, with other figures it is not."""
    rows = [row(b"1"), row(b"2")]
    client.staged("one", *rows)
    error = error_of(client.seal("one", rows[0]))
    assert error.condition == "half:mismatch"
    assert "expected 1 messages" in (error.description or "") and "there are 2" in (error.description or "")
    assert error.info is not None and plain(error.info)["half_count"] == 2
    assert plain(error.info)["half_checksum"] == checksum(*rows)
    assert condition_of(client.seal("one", rows[0], rows[0])) == "half:mismatch"
    assert condition_of(client.seal("two", *rows)) == "half:unknown-set"
    assert condition_of(client.seal("one", *rows, epoch=2)) == "half:unknown-set"
    for _ in range(2):
        assert isinstance(client.seal("one", *reversed(rows)), Accepted)  # their order does not matter
    assert condition_of(client.seal("one", rows[0])) == "half:mismatch"


def test_nothing_is_staged_after_the_seal(client: SetClient, other: SetClient) -> None:
    """The link is detached, an attach is refused, and the set is what it was."""
    link = other.staged("one", row(b"1"))
    assert isinstance(client.seal("one", row(b"1")), Accepted)
    link.send(row(b"2"))
    ended(link, "half:sealed")
    with pytest.raises(PeerError, match="half:sealed"):
        stager(client.session, "one")
    with pytest.raises(PeerError, match="half:sealed"):
        stager(client.session, "one", destination="elsewhere")
    assert client.status()["sets"] == [{"set": "one", "epoch": 1, "state": "sealed", "count": 1}]


def test_a_set_has_several_destinations(broker: JumpingBroker, client: SetClient) -> None:
    """One seal with what is in all of them; each message goes to its own queue."""
    one, two = [row(b"1"), row(b"2")], [row(b"3")]
    client.staged("one", *one, destination="q").detach()
    client.staged("one", *two, destination="w/x").detach()
    assert isinstance(client.seal("one", *one, *two), Accepted)
    assert isinstance(client.commit(("one", 3, checksum(*one, *two))), Accepted)
    assert bodies(receive(client.session.attach_receiver("q", "q", credit=5), 2)) == [b"1", b"2"]
    assert bodies(receive(client.session.attach_receiver("w", "w/x", credit=5), 1)) == [b"3"]


def test_several_links_stage_in_one_set(client: SetClient) -> None:
    """Also one after the other."""
    for body in (b"1", b"2"):
        client.staged("one", row(body)).detach()
    both = [client.staged("one", row(body)) for body in (b"3", b"4")]
    stage(both[0], row(b"5"))
    rows = [row(b"%d" % number) for number in range(1, 6)]
    assert isinstance(client.seal("one", *rows), Accepted)


def test_voided_sets_are_gone(broker: JumpingBroker, client: SetClient, other: SetClient) -> None:
    """Absent ones are accepted; the same id may be staged again; the link that stages is told."""
    link = other.staged("one", row(b"1"))
    winner = client.sealed("two", row(b"2"))
    assert isinstance(client.void("one", "two", "never"), Accepted)
    ended(link, "half:voided")
    assert condition_of(client.commit(winner)) == "half:unknown-set"
    assert condition_of(client.seal("one", row(b"1"))) == "half:unknown-set"
    assert client.sealed("one", row(b"1")) and client.status()["sets"][0]["count"] == 1
    assert isinstance(client.void("one"), Accepted)
    assert client.status()["sets"] == [] and counts(broker, "q") == (0, 0)


@pytest.mark.parametrize("epoch", [None, 1])
def test_what_was_committed_cannot_be_voided(
    broker: JumpingBroker, client: SetClient, epoch: int | None
) -> None:
    """Abort after a commit whose reply was lost: a conflict, and nothing else named is voided either."""
    winner = client.sealed("one", row(b"1"))
    client.commit(winner)
    client.staged("later", row(b"2"), epoch=2)
    assert condition_of(client.void("later", "one", epoch=epoch)) == "half:conflict"
    assert counts(broker, "q")[0] == 1
    assert [each["set"] for each in client.status()["sets"]] == ["later"]


def test_status_says_what_is_decided_and_what_is_staged(client: SetClient) -> None:
    """For one epoch, or for the producer."""
    nothing = client.status()
    assert len(nothing.pop("store_id")) == 36  # the uuid of the store
    assert nothing == {"decided": False, "winners": [], "sets": []}
    winner = client.sealed("one", row(b"1"))
    client.staged("two", row(b"2"), row(b"3"), epoch=2)
    assert client.status(1)["sets"] == [{"set": "one", "epoch": 1, "state": "sealed", "count": 1}]
    client.commit(winner)
    found = client.status(1)
    assert found["decided"] is True and found["decided_at_ms"] == EPOCH_MS and found["latest"] == 1
    assert found["winners"] == [{"set": "one", "count": 1, "checksum": winner[2]}] and found["sets"] == []
    found = client.status(2)
    assert found["decided"] is False and found["latest"] == 1 and "decided_at_ms" not in found
    assert found["sets"] == [{"set": "two", "epoch": 2, "state": "open", "count": 2}]
    nothing = client.status(producer="nobody")
    assert (nothing["decided"], nothing["winners"], nothing["sets"]) == (False, [], [])

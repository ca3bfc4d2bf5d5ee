"""Changes of sets that meet in one group of the writer: each is judged by what is stored before it."""

from __future__ import annotations

import pytest

from amqp_broker.frames import Accepted
from amqp_broker.testing.peer import PeerError, PeerSession
from tests.support.broker_clients import condition_of, counts, session_to, settle_down
from tests.support.half_set_groups import nothing_is_held, sets_of, together
from tests.support.half_sets import SetClient, checksum, commit_of, row, seal_of, void_of
from tests.support.halves import resolver, tell
from tests.support.jumping_broker import JumpingBroker

ROWS = [row(b"%d" % number) for number in range(6)]


def test_two_committers_at_once(broker: JumpingBroker) -> None:
    """One decides, the other is told that it is decided; the queue holds the winners of the decision and
    nothing else, whatever came first.
    """
    with session_to(broker) as one, session_to(broker, "two") as two:
        first, second = SetClient(one), SetClient(two)
        for epoch in range(1, 21):
            a = first.sealed(f"a{epoch}", row(b"a"), epoch=epoch)
            b = first.sealed(f"b{epoch}", row(b"b"), row(b"b"), epoch=epoch)
            asked = [
                (first.resolve, commit_of(a, epoch=epoch)),
                (second.resolve, commit_of(b, epoch=epoch)),
            ]
            told = together(broker, *(asked if epoch % 2 else reversed(asked)))
            assert all(isinstance(each, Accepted) for each in told)
            found = first.status(epoch)
            chosen = a if epoch % 2 else b
            assert [each["set"] for each in found["winners"]] == [chosen[0]] and not found["sets"]
        assert counts(broker, "q")[0] == 10 * 1 + 10 * 2
    nothing_is_held(broker)


OTHER = "4cdb5b0e-6ee6-4e28-bb40-e0a5b0f9e0a1"
ONE = ("one", 1, checksum(ROWS[0]))
PLAIN, AT_HOME = commit_of(ONE), commit_of(ONE, coordinator=OTHER)
FAR, VOTE = commit_of((*ONE, OTHER)), void_of("one", epoch=1, store=OTHER)
SEAL, PREPARE, ENLIST = seal_of(*ONE), seal_of(*ONE, coordinator=OTHER), seal_of(*ONE, store=OTHER)


@pytest.mark.parametrize(
    ("before", "first", "second", "told", "committed", "state"),
    [
        (SEAL, PLAIN, void_of("one"), "half:conflict", 1, None),
        (SEAL, void_of("one"), PLAIN, "half:unknown-set", 0, None),
        (None, PREPARE, void_of("one"), "half:prepared", 0, "prepared"),
        (None, void_of("one"), PREPARE, "half:unknown-set", 0, None),
        (None, PREPARE, AT_HOME, "", 1, None),
        (ENLIST, FAR, VOTE, "half:conflict", 0, None),
        (ENLIST, VOTE, FAR, "half:unknown-set", 0, "voided"),
        ("", ENLIST, VOTE, "", 0, "voided"),
        ("", VOTE, ENLIST, "half:voided", 0, "voided"),
    ],
)
def test_two_requests_at_once(
    broker: JumpingBroker, client: SetClient, other: PeerSession, before: bytes | str | None, first: bytes,
    second: bytes, told: str, committed: int, state: str | None,
) -> None:  # fmt: skip
    """Whoever is first has it, and the other is told so: prepared is prepared from its commit on, and what
    coordinator voted about never wins. `before` seals or enlists it; None: it is open; "": there is none.
    """
    if before is None or before == SEAL:
        client.staged("one", ROWS[0]).detach()
    if isinstance(before, bytes):
        assert isinstance(tell(client.resolve, before), Accepted)
    outcomes = together(broker, (client.resolve, first), (resolver(other), second))
    assert isinstance(outcomes[0], Accepted)
    assert (condition_of(outcomes[1]) if told else "") == told
    assert {each.state for each in sets_of(broker).values()} == ({state} if state else set())
    queues = broker.call(lambda running: running.nodes.queues.queues())
    assert sum(queue.message_count for queue in queues) == committed
    nothing_is_held(broker)


def test_later_and_earlier_epochs_at_once(broker: JumpingBroker) -> None:
    """In the order of their arrival, each judged by what is stored before it."""
    with session_to(broker) as one, session_to(broker, "two") as two:
        client, other = SetClient(one), SetClient(two)
        a = client.sealed("a", ROWS[0], epoch=1)
        b = client.sealed("b", ROWS[1], epoch=2)
        asked = [(client.resolve, commit_of(b, epoch=2)), (other.resolve, commit_of(a, epoch=1))]
        told = together(broker, *asked)
        assert isinstance(told[0], Accepted) and condition_of(told[1]) == "half:stale-epoch"
        assert client.status()["sets"] == [] and counts(broker, "q")[0] == 1


def test_a_late_stager_meets_the_commit(broker: JumpingBroker) -> None:
    """Staged before it in the same group: accepted, and voided with its set. After it: the link ends. Sets of
    later epochs go on.
    """
    with session_to(broker) as one, session_to(broker, "two") as two, session_to(broker, "3") as three:
        client = SetClient(one)
        winner = client.sealed("winner", ROWS[0])
        late = SetClient(two).staged("loser", ROWS[1])
        ahead = SetClient(three).staged("ahead", ROWS[2], epoch=2)
        with pytest.raises(PeerError, match="half:decided|half:sealed|half:voided"):
            together(
                broker,
                (client.resolve, commit_of(winner)),
                (ahead, ROWS[3]),
                (late, ROWS[4]),
            )
        settle_down(broker, one, three)
        assert sets_of(broker)["ahead"].count == 2 and set(sets_of(broker)) == {"ahead"}
        assert counts(broker, "q")[0] == 1
    nothing_is_held(broker)


def test_a_seal_that_is_sent_right_behind_its_messages(broker: JumpingBroker) -> None:
    """On one connection without waiting: judged after them, and accepted."""
    with session_to(broker) as session:
        client = SetClient(session)
        link = client.staged("one", ROWS[0])
        told = together(
            broker, (link, ROWS[1]), (link, ROWS[2]), (client.resolve, seal_of("one", 3, checksum(*ROWS[:3])))
        )
        assert all(isinstance(each, Accepted) for each in told)
    nothing_is_held(broker)


def test_messages_behind_the_seal_are_not_in_the_set(broker: JumpingBroker) -> None:
    """In the same group: refused with the link, or the seal is a mismatch; never in a sealed set."""
    with session_to(broker) as one, session_to(broker, "two") as two:
        client = SetClient(one)
        link = SetClient(two).staged("one", ROWS[0])
        sealing = seal_of("one", 1, checksum(ROWS[0]))
        with pytest.raises(PeerError, match="half:sealed"):
            together(broker, (client.resolve, sealing), (link, ROWS[1]))
        assert isinstance(tell(client.resolve, sealing), Accepted)
        assert sets_of(broker)["one"].count == 1
    nothing_is_held(broker)


def test_two_links_open_a_set_at_once_with_its_seal_and_void(broker: JumpingBroker) -> None:
    """Attaches that meet make one set."""
    with session_to(broker) as one:
        client = SetClient(one)
        links = [client.staged("one", ROWS[n], destination=name) for n, name in enumerate("qqr")]
        for link in links:
            link.detach()
        assert isinstance(client.seal("one", *ROWS[:3]), Accepted)
        assert sets_of(broker)["one"].destinations == {"q": 2, "r": 1}
        assert isinstance(client.void("one"), Accepted)
    nothing_is_held(broker)

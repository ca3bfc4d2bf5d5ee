"""The rows of the decision table on the wire of a real broker, in both of its stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from amqp_broker.embedding import RunningBroker
from amqp_broker.testing import memory_config
from amqp_broker.testing.peer import PeerSession
from tests.support.broker_clients import session_to
from tests.support.jumping_broker import JumpingBroker, stopping
from tests.support.sequenced import (
    Place,
    annotated,
    chain,
    info_of,
    left_at,
    outcomes,
    stated,
    stream_of,
    words,
)

SEQ_NO_MAX = 2**32 - 1
SEQ_ID_MAX = 2**64 - 1


@pytest.fixture(params=["memory", "disk"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PeerSession]:
    """A session with a broker."""
    config = memory_config()
    if request.param == "disk":
        config = attrs.evolve(config, memory=False, data_dir=str(tmp_path / "data"))
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        session.broker = broker  # type: ignore[attr-defined]
        yield session


def broker_of(session: PeerSession) -> RunningBroker:
    """The broker of the fixture."""
    broker = session.broker  # type: ignore[attr-defined]
    assert isinstance(broker, RunningBroker)
    return broker


def told(session: PeerSession, *places: Place) -> list[str]:
    """What messages at these places are told, sent in one write on a link of their own."""
    sender = session.attach_sender(f"s-{max(session.links, default=-1) + 1}", "q")
    return words(outcomes(sender, [annotated(place) for place in places]))


def position(session: PeerSession) -> tuple[int, int]:
    """Where the stream stands."""
    info = stream_of(broker_of(session), "q")
    return info.seq_id, info.seq_no


def test_first_and_next(session: PeerSession) -> None:
    """A sequence begins with a prev of 0, and goes on where it was (rows 6 and 1)."""
    assert told(session, *chain(1, 3)) == ["accepted"] * 3
    assert told(session, *chain(4, 5)) == ["accepted"] * 2
    assert position(session) == (1, 5)
    assert left_at(session, "q", 5) == ["1.1", "1.2", "1.3", "1.4", "1.5"]


def test_a_duplicate_is_accepted_and_discarded(session: PeerSession) -> None:
    """The last one, an older one, in the same write and in a later one (rows 4 and 5); they are counted."""
    assert told(session, (1, 1, 0), (1, 2, 1), (1, 2, 1), (1, 1, 0)) == ["accepted"] * 4
    assert stream_of(broker_of(session), "q").reject_count == 2
    assert told(session, (1, 1, 0)) == ["accepted"]
    assert stream_of(broker_of(session), "q").reject_count == 3
    assert left_at(session, "q", 2) == ["1.1", "1.2"]


def test_a_gap_refuses_everything_behind_it(session: PeerSession) -> None:
    """Number 3 is missing: 4, 5 and 6 are told where to begin again, and come through then (row 3)."""
    sender = session.attach_sender("s", "q")
    states = outcomes(sender, [annotated(place) for place in [*chain(1, 2), *chain(4, 6)]])
    assert words(states) == ["accepted"] * 2 + ["seq:gap"] * 3
    assert info_of(states[2]) == {"seq-id": 1, "seq-no": 2, "expected-prev": 2}
    assert "number 2: expected prev 2" in states[2].error.description
    assert stream_of(broker_of(session), "q").reject_count == 3
    assert words(outcomes(sender, [annotated(place) for place in chain(3, 6)])) == ["accepted"] * 4
    assert stream_of(broker_of(session), "q").reject_count == 0
    assert left_at(session, "q", 6) == ["1.1", "1.2", "1.3", "1.4", "1.5", "1.6"]


def test_a_sender_chains_over_messages_that_it_dropped(session: PeerSession) -> None:
    """Numbers 3 to 9 are given up: 10 names 2 as the one before it (row 1); also below it (row 2)."""
    assert told(session, *chain(1, 2), (1, 10, 2), (1, 11, 10)) == ["accepted"] * 4
    assert told(session, (1, 20, 5)) == ["accepted"]
    assert position(session) == (1, 20)
    assert left_at(session, "q", 5) == ["1.1", "1.2", "1.10", "1.11", "1.20"]


def test_an_overlap_is_taken_from_where_it_is_new(session: PeerSession) -> None:
    """A resend of 2 to 5 when 3 was reached: two duplicates, two new ones."""
    told(session, *chain(1, 3))
    assert told(session, *chain(2, 5)) == ["accepted"] * 4
    assert left_at(session, "q", 5) == ["1.1", "1.2", "1.3", "1.4", "1.5"]


def test_a_new_id_begins_with_its_start(session: PeerSession) -> None:
    """Without the start it is a gap and the old one goes on; with it the old one is stale (rows 6, 7, 8)."""
    told(session, *chain(1, 3))
    sender = session.attach_sender("late", "q")
    (gap,) = outcomes(sender, [annotated((7, 2, 1))])
    assert words([gap]) == ["seq:gap"] and info_of(gap) == {"seq-id": 1, "seq-no": 3, "expected-prev": 0}
    assert "beginning of id 7" in gap.error.description
    assert told(session, (1, 4, 3), (7, 1, 0), (7, 2, 1)) == ["accepted"] * 3
    duplicate, stale = outcomes(sender, [annotated((1, 4, 3)), annotated((1, 5, 4))])
    assert words([duplicate, stale]) == ["accepted", "seq:stale"]
    assert info_of(stale) == {"seq-id": 7, "seq-no": 2}
    assert left_at(session, "q", 6) == ["1.1", "1.2", "1.3", "1.4", "7.1", "7.2"]


def test_a_new_id_may_begin_with_any_number(session: PeerSession) -> None:
    """What counts is that its prev is 0."""
    assert told(session, (1, 1, 0), (2, 41, 0), (2, 42, 41)) == ["accepted"] * 3
    assert position(session) == (2, 42)


def test_eight_former_ids_know_their_duplicates(session: PeerSession) -> None:
    """Late ones of the last eight are accepted and discarded, of older ones stale."""
    for seq_id in range(1, 11):
        assert told(session, *chain(1, 2, seq_id)) == ["accepted"] * 2
    assert told(session, (2, 2, 1), (2, 3, 2), (1, 1, 0)) == ["accepted", "seq:stale", "seq:stale"]
    assert stream_of(broker_of(session), "q").former == tuple((seq_id, 2) for seq_id in range(2, 10))


def test_the_largest_numbers(session: PeerSession) -> None:
    """The last id and the last number are taken like others, and nothing comes behind them."""
    last = (SEQ_ID_MAX, SEQ_NO_MAX, 0)
    assert told(session, last) == ["accepted"]
    assert position(session) == (SEQ_ID_MAX, SEQ_NO_MAX)
    assert told(session, last) == ["accepted"]
    assert left_at(session, "q", 1) == [f"{SEQ_ID_MAX}.{SEQ_NO_MAX}"]


@pytest.mark.parametrize("place", [(0, 1, 0), (1, 0, 0), (1, 3, 3), (1, 3, 4)])
def test_a_malformed_place_is_refused_and_not_counted(session: PeerSession, place: Place) -> None:
    """Id 0, number 0, a prev that is not below the number (row 0); the stream stays where it was."""
    told(session, (1, 1, 0))
    assert told(session, place) == ["amqp:invalid-field"]
    info = stream_of(broker_of(session), "q")
    assert (info.seq_id, info.seq_no, info.reject_count) == (1, 1, 0)
    assert left_at(session, "q", 1) == ["1.1"]


def test_a_hundred_pipelined_with_one_lost(session: PeerSession) -> None:
    """Number 40 of 100 is lost on its way: 39 are taken; the resend from 40 makes a hundred in order."""
    sender = session.attach_sender("s", "q")
    places = chain(1, 100)
    states = outcomes(sender, [annotated(place) for place in places if place[1] != 40])
    assert words(states) == ["accepted"] * 39 + ["seq:gap"] * 60
    assert {info_of(state)["expected-prev"] for state in states[39:]} == {39}
    assert words(outcomes(sender, [annotated(place) for place in places[39:]])) == ["accepted"] * 61
    assert left_at(session, "q", 100) == [f"1.{number}" for number in range(1, 101)]


def test_a_sender_that_cannot_read_the_attach_reply_sends_all_again(session: PeerSession) -> None:
    """As JMS does, with application properties: what was there is accepted and discarded, the rest is new."""
    sender = session.attach_sender("s", "q")
    assert words(outcomes(sender, [stated(place) for place in chain(1, 4)])) == ["accepted"] * 4
    sender.detach()
    again = session.attach_sender("s", "q")
    assert words(outcomes(again, [stated(place) for place in chain(1, 7)])) == ["accepted"] * 7
    assert left_at(session, "q", 7) == [f"1.{number}" for number in range(1, 8)]


def test_streams_of_a_queue_and_queues_are_apart(session: PeerSession) -> None:
    """The state's key is (destination, stream)."""
    sender = session.attach_sender("s", "q")
    other = session.attach_sender("o", "other")
    first = [annotated((1, 1, 0), stream) for stream in ("a", "b", "a")]
    assert words(outcomes(sender, first)) == ["accepted"] * 3
    assert words(outcomes(other, first)) == ["accepted"] * 3
    assert left_at(session, "q", 2) == ["1.1", "1.1"]
    assert left_at(session, "other", 2) == ["1.1", "1.1"]

"""The sender's side: numbers, resends, chaining over dropped messages, and when a new id may begin."""

from __future__ import annotations

import random

import pytest

from amqp_broker.coordinator.sequences import (
    SEQ_ID_MAX,
    SEQ_NO_MAX,
    Numbering,
    SequenceAnswer,
    StreamPosition,
    accept,
)
from amqp_broker.embedding import running_broker
from amqp_broker.frames import Accepted, Header, encode_message
from amqp_broker.sequences.client import (
    GAP,
    STALE,
    NumbersUsedUp,
    Outbox,
    Sending,
    StreamTaken,
    Unacknowledged,
)
from tests.support.broker_clients import error_of, session_to
from tests.support.examples import seeds
from tests.support.sequenced import attached_sender, left_at


def places(sendings: list[Sending]) -> list[tuple[int, int, int]]:
    """(id, number, prev) of each."""
    return [(each.seq_id, each.seq_no, each.seq_prev) for each in sendings]


def outbox_with(*messages: str, seq_id: int = 1) -> Outbox:
    """An outbox with an id, and these messages."""
    outbox = Outbox("s", seq_id)
    for message in messages:
        outbox.put(message)
    return outbox


def test_messages_are_numbered_and_chained() -> None:
    """Each is sent once, in order, at most as many as wanted."""
    outbox = outbox_with("a", "b", "c")
    assert places(outbox.next(2)) == [(1, 1, 0), (1, 2, 1)]
    assert places(outbox.next(2)) == [(1, 3, 2)]
    assert outbox.next() == []
    outbox.put("d")
    assert places(outbox.next()) == [(1, 4, 3)]
    assert len(outbox) == 4 and outbox.unacknowledged == ["a", "b", "c", "d"]


def test_the_id_follows_what_the_attach_tells() -> None:
    """Nothing can be sent before."""
    outbox = outbox_with("a", seq_id=0)
    assert outbox.next() == []
    outbox.attached(41, 7)
    assert places(outbox.next()) == [(42, 1, 0)]


def test_after_a_gap_everything_is_sent_again_in_order() -> None:
    """Once, although every message behind the gap is refused."""
    outbox = outbox_with("a", "b", "c", "d")
    sendings = outbox.next()
    outbox.accepted(sendings[0])
    for sending in sendings[2:]:
        outbox.refused(sending, GAP)
    again = outbox.next()
    assert places(again) == [(1, 2, 1), (1, 3, 2), (1, 4, 3)]
    outbox.refused(sendings[3], GAP)  # what was sent before it went back is old news
    assert outbox.next() == []
    for sending in again:
        outbox.accepted(sending)
    assert len(outbox) == 0


def test_what_is_refused_for_want_of_room_is_sent_again_too() -> None:
    """When the caller asks for it."""
    outbox = outbox_with("a", "b")
    first, second = outbox.next()
    outbox.refused(first, "amqp:resource-limit-exceeded")
    outbox.refused(second, GAP)
    assert places(outbox.next()) == [(1, 1, 0), (1, 2, 1)]


def test_a_dropped_message_is_chained_over() -> None:
    """The next one names the one before it; also for several, the first and the last."""
    outbox = outbox_with("a", "b", "c", "d", "e")
    outbox.drop(2)
    outbox.drop(3)
    assert places(outbox.next()) == [(1, 1, 0), (1, 4, 1), (1, 5, 4)]
    outbox.drop(1)
    outbox.drop(5)
    outbox.drop(5)
    outbox.put("f")
    assert places(outbox.next()) == [(1, 4, 0), (1, 6, 4)]


def test_a_lost_link_sends_again_what_was_not_acknowledged() -> None:
    """The attach of the next one tells what is there; without it the broker discards what it has."""
    outbox = outbox_with("a", "b", "c", "d")
    sendings = outbox.next()
    outbox.accepted(sendings[0])
    outbox.lost()
    assert places(outbox.next()) == [(1, 2, 1), (1, 3, 2), (1, 4, 3)]
    outbox.lost()
    outbox.attached(1, 3)
    assert places(outbox.next()) == [(1, 4, 3)]
    outbox.refused(sendings[2], GAP)
    assert outbox.next() == [] and outbox.unacknowledged == ["d"]


def test_a_new_id_waits_until_everything_is_acknowledged() -> None:
    """The unacknowledged tail of the old one would be lost when the new one overtakes it."""
    outbox = outbox_with("a", "b")
    first, second = outbox.next()
    outbox.accepted(first)
    with pytest.raises(Unacknowledged, match="1 messages of id 1"):
        outbox.new_id()
    outbox.lost()
    with pytest.raises(Unacknowledged):
        outbox.new_id()
    outbox.accepted(second)
    outbox.new_id()
    outbox.put("c")
    assert places(outbox.next()) == [(2, 1, 0)]


def test_a_new_id_takes_along_what_is_known_not_to_be_there() -> None:
    """After an attach, before anything is sent: the messages are numbered anew."""
    outbox = outbox_with("a", "b", "c")
    outbox.next()
    outbox.lost()
    outbox.attached(1, 1)
    outbox.new_id(9)
    assert [(each.message, *place) for each, place in _with_places(outbox.next())] == [
        ("b", 9, 1, 0), ("c", 9, 2, 1),
    ]  # fmt: skip
    with pytest.raises(Unacknowledged):
        outbox.new_id()


def _with_places(sendings: list[Sending]) -> list[tuple[Sending, tuple[int, int, int]]]:
    return list(zip(sendings, places(sendings), strict=True))


def test_outcomes_of_a_former_id_say_nothing() -> None:
    """Numbers begin anew with each id."""
    outbox = outbox_with("a")
    (old,) = outbox.next()
    outbox.accepted(old)
    outbox.new_id()
    outbox.put("b")
    (new,) = outbox.next()
    outbox.accepted(old)
    outbox.refused(old, STALE)
    assert outbox.unacknowledged == ["b"] and outbox.next() == []
    outbox.accepted(new)
    assert len(outbox) == 0


def test_a_stream_that_somebody_else_has_taken() -> None:
    """Told at the attach, or by an outcome."""
    outbox = outbox_with("a")
    (sending,) = outbox.next()
    with pytest.raises(StreamTaken):
        outbox.refused(sending, STALE)
    with pytest.raises(StreamTaken):
        outbox.attached(2, 0)


def test_the_bounds_of_ids_and_numbers() -> None:
    """What the wire can't say is refused."""
    with pytest.raises(ValueError, match="expected an id"):
        Outbox("s", SEQ_ID_MAX + 1)
    outbox = outbox_with("a", seq_id=5)
    with pytest.raises(ValueError, match="from 6"):
        outbox.new_id(5)
    outbox._last = SEQ_NO_MAX - 1
    assert outbox.put("last") == SEQ_NO_MAX
    with pytest.raises(NumbersUsedUp):
        outbox.put("one more")


def test_numbers_in_types_that_java_has() -> None:
    """Signed ones, as far as they reach."""
    small = Sending("s", 1, 2, 1, None, 0).application_properties()
    assert [type(small[name]).__name__ for name in ("seq_id", "seq_no", "seq_prev")] == ["Long", "Int", "Int"]
    large = Sending("s", SEQ_ID_MAX, SEQ_NO_MAX, 1, None, 0).application_properties()
    assert [type(large[name]).__name__ for name in ("seq_id", "seq_no")] == ["Ulong", "Long"]


@pytest.mark.parametrize("seed", seeds(200))
def test_over_a_bad_wire_everything_arrives_in_order_and_once(seed: int) -> None:
    """Messages and outcomes are lost, links break between any two steps, some attaches can't be read: what
    the rule accepts is what was put, in order, once.
    """
    chance = random.Random(seed)
    outbox = Outbox("s", seq_id=1)
    position = StreamPosition()
    there: list[int] = []
    wire: list[Sending] = []
    put = 0
    for _ in range(100_000):
        if put < 40 and chance.random() < 0.3:
            put += 1
            outbox.put(put)
        wire.extend(outbox.next(chance.randint(1, 8)))
        if wire and chance.random() < 0.9:
            sending = wire.pop(0)
            if chance.random() < 0.05:
                continue  # a transfer is lost, as a buggy relay loses it; the next one is a gap
            numbering = Numbering(sending.seq_id, sending.seq_no, sending.seq_prev)
            answer, position = accept(position, numbering)
            if answer is SequenceAnswer.ACCEPT:
                there.append(sending.message)
            if answer in (SequenceAnswer.ACCEPT, SequenceAnswer.DUPLICATE):
                if chance.random() < 0.9:
                    outbox.accepted(sending)
            else:
                outbox.refused(sending, answer.value)
        elif chance.random() < 0.2:
            wire = wire[: chance.randint(0, len(wire))]
            for sending in wire:  # what had left before the link broke is still judged, unheard
                answer, position = accept(
                    position, Numbering(sending.seq_id, sending.seq_no, sending.seq_prev)
                )
                if answer is SequenceAnswer.ACCEPT:
                    there.append(sending.message)
            wire = []
            outbox.lost()
            if chance.random() < 0.5:
                outbox.attached(position.seq_id, position.seq_no)
                if len(outbox) and chance.random() < 0.3:
                    outbox.new_id()
        if put == 40 and not len(outbox):
            break
    assert there == list(range(1, 41)), f"seed {seed}"


def test_against_a_broker() -> None:
    """Over a real link: a lost outcome, a new connection, a new id."""
    with running_broker() as broker:
        outbox = Outbox("s")
        for number in range(1, 6):
            outbox.put(b"%d" % number)
        for _ in range(2):
            with session_to(broker) as session:
                link = attached_sender(session, "s", "q", "s")
                assert link.remote_attach is not None and link.remote_attach.properties is not None
                reply = link.remote_attach.properties
                outbox.attached(reply["seq-id"].value, reply["seq-no"].value)
                session.connection.pump_until(lambda link=link: link.may_send)  # type: ignore[misc]
                sent = {link.send(_payload(each)): each for each in outbox.next(3)}
                session.connection.pump_until(lambda link=link, sent=sent: len(link.outcomes) == len(sent))  # type: ignore[misc]
                for number, sending in list(sent.items())[1:]:  # the first outcome is not heard
                    if isinstance(link.outcomes[number], Accepted):
                        outbox.accepted(sending)
                    else:
                        outbox.refused(sending, error_of(link.outcomes[number]).condition)
                outbox.lost()
        with session_to(broker) as session:
            link = attached_sender(session, "s", "q", "s")
            assert link.remote_attach is not None and link.remote_attach.properties is not None
            outbox.attached(
                link.remote_attach.properties["seq-id"].value, link.remote_attach.properties["seq-no"].value
            )
            assert len(outbox) == 0
            assert left_at(session, "q", 5) == ["1", "2", "3", "4", "5"]


def _payload(sending: Sending) -> bytes:
    return encode_message(
        header=Header(durable=True),
        application_properties=sending.application_properties(),
        body=sending.message,
    )

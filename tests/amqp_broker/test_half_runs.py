"""Puts and resolutions that come together: what one read brings is one run, and is answered as each alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerConfig
from amqp_broker.coordinator import OpenHalf, half_id_of
from amqp_broker.frames import Message, Rejected, Symbol, Ulong, encode_message
from amqp_broker.halves.requests import delivered_body
from amqp_broker.testing.peer import PeerSender, PeerSession
from tests.links.pair import Message as Sendable
from tests.support.broker_clients import counts, receive, session_to
from tests.support.by_hand import Served, at_hand
from tests.support.halves import events_of, half, putter, resolution, resolver
from tests.support.jumping_broker import PATIENT, InEachStore, JumpingBroker, Start, on_disk
from tests.support.sequenced import outcomes, words

ACCEPTED = "accepted"


@pytest.fixture
def config(in_each_store: InEachStore) -> BrokerConfig:
    """In memory, and on disk."""
    return in_each_store(PATIENT)


def told(link: PeerSender, payloads: list[bytes]) -> list[str]:
    """What messages of one write are told."""
    return words(outcomes(link, payloads))


def bodies(session: PeerSession, count: int) -> list[str]:
    """The half-ids of so many messages of the queue, in their order."""
    found = receive(session.attach_receiver("r", "q", credit=count), count)
    annotated = [Message(each.payload).message_annotations or {} for each in found]
    return [each[Symbol("x-opt-half-id")] for each in annotated]


def test_each_message_of_a_read_has_its_own_answer(broker: JumpingBroker, session: PeerSession) -> None:
    """Repeats, other content, no id, a wrong field: as if each had come alone."""
    put, resolve = putter(session), resolver(session)
    puts = [
        half("1"), half("2"), half("1"), half("2", b"other"), half(None), half("3"),
        half("4", named={"half_max_age_ms": -1}), half("5", named={"half_id": "five"}),
    ]  # fmt: skip
    assert told(put, puts) == [
        ACCEPTED, ACCEPTED, ACCEPTED, "half:id-conflict", "half:id-required", ACCEPTED,
        "amqp:invalid-field", ACCEPTED,
    ]  # fmt: skip
    asked = [
        resolution("2", "commit"), resolution("1", "commit"), resolution("2", "commit"),
        resolution("1", "rollback"), resolution("9", "commit"), resolution("3", "rollback"),
        resolution("3", "sell"), resolution("five", "commit", {"half_reason": "paid"}),
    ]  # fmt: skip
    assert told(resolve, asked) == [
        ACCEPTED, ACCEPTED, ACCEPTED, "half:conflict", "half:unknown-id", ACCEPTED, "amqp:invalid-field",
        ACCEPTED,
    ]  # fmt: skip
    assert counts(broker, "q")[0] == 3
    assert bodies(session, 3) == ["2", "1", "five"]


@at_hand()
async def test_a_read_of_puts_has_one_answer(at: Served) -> None:
    """They keep room in their queue, and are in none."""
    sender = await at.sender("$half/g/q")
    sender.send([Sendable(half(f"h{number}")) for number in range(3)])
    await at.settle()
    queue = at.queue()
    assert at.conditions == [ACCEPTED] * 3 and at.answers == [3]
    assert (queue.reserved_messages, queue.message_count) == (3, 0)


def test_a_contradiction_in_one_read_is_told_what_is_stored(
    broker: JumpingBroker, session: PeerSession
) -> None:
    """Who decided, and when: it is judged again after the commit."""
    put, resolve = putter(session), resolver(session)
    told(put, [half("1")])
    numbers = [resolve.send(resolution("1", what)) for what in ("commit", "rollback")]
    session.connection.pump_until(lambda: all(number in resolve.outcomes for number in numbers))
    refused = resolve.outcomes[numbers[1]]
    assert isinstance(refused, Rejected) and refused.error is not None and refused.error.info is not None
    info = {getattr(key, "value", key): value for key, value in refused.error.info.items()}
    assert info["half_resolved_by"] == "producer" and info["half_state"] == "committed"
    assert getattr(info["half_resolved_at"], "value", info["half_resolved_at"]) == broker.now_ms()


def test_events_of_a_run_are_those_of_each(broker: JumpingBroker) -> None:
    """In their order, with the fields of each, though they are stored together."""
    with session_to(broker) as session:
        told(putter(session), [half(f"{n}", b"x" * n) for n in range(4)])
        asked = [("0", "commit"), ("1", "commit"), ("2", "rollback"), ("3", "commit")]
        told(resolver(session), [resolution(*each) for each in asked])
    found = [each for each in events_of(broker) if each.kind.startswith("half.")]
    assert [each.kind for each in found] == [
        *["half.put"] * 4, "half.committed", "half.committed", "half.rolled_back", "half.committed"
    ]  # fmt: skip
    assert [each.fields["half_id"] for each in found] == [f"string:{n}" for n in (0, 1, 2, 3) * 2]
    sizes = [int(each.fields["bytes"]) for each in found[:4]]
    assert [size - sizes[0] for size in sizes] == [0, 1, 2, 3]
    assert all(each.fields["destination"] == "q" and each.fields["group"] == "g" for each in found[:4])
    assert [found[place].fields["offset"] for place in (4, 5, 7)] == [0, 1, 2]


def test_events_of_a_run_keep_their_queues(broker: JumpingBroker) -> None:
    """Where one resolves for several destinations."""
    with session_to(broker) as session:
        for name, count in (("q", 2), ("p", 1)):
            told(putter(session, destination=name), [half(f"{name}{n}") for n in range(count)])
        told(resolver(session), [resolution(each, "commit") for each in ("q0", "p0", "q1")])
    found = [each.fields for each in events_of(broker) if each.kind == "half.committed"]
    assert [(each["queue"], each["offset"]) for each in found] == [("q", 0), ("p", 0), ("q", 1)]


def test_a_full_disk_for_a_run_is_asked_again_for_each(broker: JumpingBroker, session: PeerSession) -> None:
    """There was room for each alone: nobody learns of it, and the order is that of the link."""
    put, resolve = putter(session), resolver(session)
    broker.faults.refuse_commit()
    assert told(put, [half(f"{n}") for n in range(5)]) == [ACCEPTED] * 5
    broker.faults.refuse_commit()
    asked = told(resolve, [resolution(f"{n}", "commit") for n in (3, 1, 4, 0, 2)])
    assert asked == [ACCEPTED] * 5
    assert bodies(session, 5) == ["3", "1", "4", "0", "2"]


def test_where_there_is_room_for_none_each_is_told(broker: JumpingBroker, session: PeerSession) -> None:
    """And nothing of them is left: the same again is accepted."""
    put = putter(session)
    broker.faults.refuse_commit(count=9)
    payloads = [half(f"{n}") for n in range(3)]
    assert told(put, payloads) == ["amqp:resource-limit-exceeded"] * 3
    broker.faults._commit_errors.clear()
    assert told(put, payloads) == [ACCEPTED] * 3
    assert told(resolver(session), [resolution(f"{n}", "commit") for n in range(3)]) == [ACCEPTED] * 3
    assert counts(broker, "q")[0] == 3


def test_rollbacks_pass_where_the_disk_has_no_room_for_commits(start: Start, tmp_path: Path) -> None:
    """Below the low-water mark, though they came in one read with commits."""
    broker = start(on_disk(tmp_path))
    with session_to(broker) as session:
        put, resolve = putter(session), resolver(session)
        told(put, [half(f"{n}") for n in range(4)])

        def refuse(running: Broker, refuses: bool) -> None:
            space: Any = running.writer._store._store._space  # type: ignore[attr-defined]
            space.refuse_posts = lambda: refuses

        broker.call(lambda running: refuse(running, True))
        words = ("commit", "rollback", "commit", "rollback")
        asked = [resolution(f"{n}", word) for n, word in enumerate(words)]
        full = "amqp:resource-limit-exceeded"
        assert told(resolve, asked) == [full, ACCEPTED, full, ACCEPTED]
        assert told(put, [half("8"), half("9")]) == [full, full]
        broker.call(lambda running: refuse(running, False))
        assert told(resolve, asked) == [ACCEPTED] * 4
        assert told(put, [half("8"), half("9")]) == [ACCEPTED] * 2
        assert bodies(session, 2) == ["0", "2"]


@pytest.mark.parametrize("half_id", ["order-17", "é" * 90, b"\x00\xff", Ulong(7), "x" * 230])
@pytest.mark.parametrize("annotated", [True, False])
def test_annotation_of_a_half_id_is_written_as_the_encoder_does(half_id: Any, annotated: bool) -> None:
    """By bytes where it is the only one."""
    message = half(half_id, subject="s")
    if annotated:
        message = encode_message(message_annotations={"x-a": 1}, body=b"b")
    key = half_id_of(half_id)
    assert key is not None
    one = OpenHalf(key, "q", b"", 0, 0, 0, "c", 0)
    there = {"x-a": 1} if annotated else {}
    expected = encode_message(message_annotations={**there, "x-opt-half-id": half_id}, body=b"")
    assert delivered_body(one, message, "").startswith(expected[: -len(b"\x00\x53\x75\xa0\x00")])
    assert delivered_body(one, message, "").endswith(message if not annotated else message[-5:])

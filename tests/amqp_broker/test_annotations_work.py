"""What `modified` with annotations costs: each map is read and written once, and others have turns."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import amqp_broker.records
from amqp_broker.configuration import BrokerLimits
from amqp_broker.connection import OCTETS_AT_ONCE
from amqp_broker.frames import (
    Accepted,
    AmqpValue,
    Discharge,
    Message,
    Modified,
    Symbol,
    encode_message,
    encode_section,
)
from amqp_broker.testing import memory_config
from tests.links.pair import Message as Sendable
from tests.support.by_hand import Control, Main, Served, at_hand, by_hand, condition_of, drives, within

pytestmark = pytest.mark.interpreted

MAP_OCTETS = 20_000
COUNT = 24
AT_ONCE = OCTETS_AT_ONCE // MAP_OCTETS + 1
"""So many maps of this size a step begins; the last one may go beyond the bound."""
NOTE = Modified(delivery_failed=True, message_annotations={"x-opt-note": "n"})


class Spy(trio.abc.Instrument):
    """Counts maps that are decoded and encoded, in all and in each step of a task."""

    here: Spy

    def __init__(self) -> None:
        self.decoded = self.encoded = 0
        self.most = 0
        self._here = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Another one goes on."""
        self._here = 0

    def count(self) -> None:
        """One more map."""
        self._here += 1
        self.most = max(self.most, self._here)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    """What reads and writes the maps of messages is counted."""
    spy = Spy.here = Spy()
    decode, encode = Message._map, encode_section

    def decoding(message: Message, index: int) -> dict[Any, Any]:
        spy.decoded += 1
        spy.count()
        return decode(message, index)

    def encoding(name: str, value: dict[Any, Any]) -> bytes:
        if len(value) > 1:  # else what is added, by itself
            spy.encoded += 1
        return encode(name, value)

    monkeypatch.setattr(Message, "_map", decoding)
    monkeypatch.setattr(amqp_broker.records, "encode_section", encoding)
    return spy


def spied(main: Main) -> None:
    """Run `main` with a connection to a broker in which the spy sees the steps of tasks."""

    async def run(at: Served) -> None:
        trio.lowlevel.add_instrument(Spy.here)
        await main(at)

    by_hand(run, memory_config(limits=BrokerLimits(annotations_bytes=32_768)))


with_spy = drives(spied)


async def filled(at: Served, count: int = COUNT, octets: int = MAP_OCTETS) -> Served:
    """So many messages that come with a map of this size in q; another connection."""
    payload = encode_message(message_annotations={Symbol("x-opt-mine"): b"m" * octets}, body=b"body")
    sender = await at.sender("q")
    sent = 0
    while sent < count:  # what the window takes
        sent += sender.send([Sendable(payload)] * (count - sent))
        await at.settle()
    assert at.conditions == ["accepted"] * count
    at.outcomes.clear()
    return at.another()


async def again(other: Served, count: int = COUNT) -> list[Message]:
    """What comes to the next consumer."""
    await other.receiver("q", count)
    assert len(other.received) == count
    return [Message(each.payload) for each in other.received]


def check(spy: Spy, messages: list[Message], count: int = COUNT) -> None:
    """Once each, a few at a time, and everything is done."""
    assert (spy.decoded, spy.encoded) == (count, count)
    assert spy.most <= AT_ONCE, f"{spy.most} maps in one step"
    for message in messages:
        assert message.header.delivery_count == 1
        assert Symbol("x-opt-note") in (message.message_annotations or {})


@pytest.mark.parametrize("way", ["settled", "unsettled", "many dispositions", "closed behind it"])
@with_spy
async def test_a_range_is_done_in_steps(at: Served, spy: Spy, way: str) -> None:
    """One disposition of some octets about many messages does not stop everybody, nor do many in one write:
    what a peer asks for bit by bit is no less work. What follows in the same write changes nothing of it.
    """
    other = await filled(at)
    receiver = await at.receiver("q", COUNT)
    if way == "many dispositions":
        for number, each in enumerate(at.received):
            note = {"x-opt-note": str(number)}
            receiver.settle([each], Modified(delivery_failed=True, message_annotations=note))
    else:
        receiver.dispose(at.received, NOTE, way == "settled")
    if way == "closed behind it":
        await at.close()
    else:
        receiver.detach()
    check(spy, await again(other))


@pytest.mark.parametrize("acquired", [True, False])
@pytest.mark.parametrize("settled", [True, False])
@with_spy
async def test_a_discharge_finds_the_maps_done(at: Served, spy: Spy, settled: bool, acquired: bool) -> None:
    """In a transaction each map is merged when its outcome comes, and not in the commit of all."""
    other, control, receiver = await filled(at), Control(at), await at.receiver("q")
    txn_id = await control.declare()
    receiver.flow(COUNT, properties={"txn-id": txn_id} if acquired else None)
    await at.settle()
    receiver.dispose(at.received, within(txn_id, NOTE), settled)
    await control.commit(txn_id)
    await at.close()
    check(spy, await again(other))


@with_spy
async def test_what_waits_for_a_discharge_is_done_in_steps_to_its_end(at: Served, spy: Spy) -> None:
    """Two ranges behind a discharge that decides one delivery of the first: all others of both are done."""
    other, control, receiver = await filled(at), Control(at), await at.receiver("q", COUNT)
    txn_id, got = await control.declare(), at.take()
    receiver.dispose(got[:1], within(txn_id, Accepted()), False)
    control.link.send([Sendable(encode_message(body=AmqpValue(Discharge(txn_id=txn_id))))])
    receiver.dispose(got[: COUNT // 2], NOTE, False)
    another = {"x-opt-note": "other"}
    receiver.dispose(got[COUNT // 2 :], Modified(delivery_failed=True, message_annotations=another), False)
    await at.settle()
    assert at.outcomes == [Accepted()]
    receiver.detach()
    check(spy, await again(other, COUNT - 1), COUNT - 1)


@with_spy
async def test_the_last_outcome_in_a_transaction_counts(at: Served, spy: Spy) -> None:
    """An unsettled outcome may be replaced, and what was merged for the first one is not used."""
    other, control, receiver = await filled(at, 1), Control(at), await at.receiver("q", 1)
    txn_id = await control.declare()
    for outcome in (NOTE, Modified(delivery_failed=True, message_annotations={"x-opt-other": "o"})):
        receiver.dispose(at.received, within(txn_id, outcome), False)
    await control.commit(txn_id)
    await at.close()
    (message,) = await again(other, 1)
    assert set(message.message_annotations or {}) == {Symbol("x-opt-mine"), Symbol("x-opt-other")}


@with_spy
async def test_what_came_with_more_than_the_bound_is_not_touched(at: Served, spy: Spy) -> None:
    """The bound holds whatever a message brought; nothing is decoded to find that out."""
    other, receiver = await filled(at, 2, octets=40_000), await at.receiver("q", 2)
    receiver.dispose(at.received, NOTE, False)
    await at.settle()
    (gone,) = at.detached
    assert gone.error is not None and "(limits.annotations_bytes)" in (gone.error.description or "")
    assert at.condition() == "amqp:resource-limit-exceeded" and spy.decoded == 0
    first, second = await again(other, 2)
    assert (first.header.delivery_count, second.header.delivery_count or 0) == (1, 0)
    assert set(first.message_annotations or {}) == {Symbol("x-opt-mine")}


@at_hand(transaction_bytes=17 << 20)
async def test_a_transaction_counts_what_is_added(at: Served) -> None:
    """What waits for the commit takes of the transaction's octets: else small messages hid large maps."""
    count = 700  # 20 MiB of maps
    for _ in range(7):
        await at.post("q", *[b"x"] * (count // 7))
    control, receiver = Control(at), await at.receiver("q")
    receiver.flow(count)
    await at.settle()
    txn_id, added = await control.declare(), Modified(message_annotations={"x-opt-note": "n" * 30_000})
    receiver.dispose(at.received, within(txn_id, added), False)
    answer = await control.discharge(txn_id)
    assert condition_of(answer) != "accepted" and "and may have" in answer.error.description

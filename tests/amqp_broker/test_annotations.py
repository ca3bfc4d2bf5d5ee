"""The annotations that consumers add with modified (3.4.5): a message does not grow without a bound."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.frames import Accepted, Message, Modified, Symbol, encode_message
from amqp_broker.links import ReceiverLink
from tests.links.pair import Message as Sendable
from tests.support.by_hand import Control, Served, at_hand, within

with_little_room = at_hand(annotations_bytes=1_024)
TOO_MUCH = "amqp:resource-limit-exceeded"


def modified(key: str, size: int = 200) -> Modified:
    """A try that leaves a note."""
    return Modified(delivery_failed=True, message_annotations={f"x-opt-{key}": "n" * size})


async def one_more(at: Served, receiver: ReceiverLink) -> Any:
    """The next message, by itself."""
    receiver.flow(1)
    await at.settle()
    return at.take()


async def tries(at: Served, receiver: ReceiverLink, *keys: str) -> None:
    """One try after another, each told under its own key."""
    for key in keys:
        receiver.settle(await one_more(at, receiver), modified(key))


@pytest.mark.parametrize("settled", [True, False])
@with_little_room
async def test_annotations_stop_at_their_bound(at: Served, settled: bool) -> None:
    """Beyond it the link ends and says why; the message keeps what it had, and the try is counted."""
    queue = await at.post("q", b"body")
    receiver = await at.receiver("q")
    await tries(at, receiver, "1", "2", "3", "4")
    receiver.dispose(await one_more(at, receiver), modified("5"), settled)
    await at.settle()
    (gone,) = at.detached
    assert gone.error is not None and "1024 octets" in (gone.error.description or "")
    assert at.condition() == TOO_MUCH
    receiver = await at.receiver("q", 1, "next")
    found = Message(at.received[0].payload)
    assert set(found.message_annotations or {}) == {Symbol(f"x-opt-{key}") for key in "1234"}
    assert found.header.delivery_count == 5
    receiver.settle(at.received, Accepted())
    await at.settle()
    assert (queue.message_count, queue.byte_count) == (0, 0)


@with_little_room
async def test_what_replaces_is_no_growth(at: Served) -> None:
    """The same key again and again, and a message that came with nearly all that there may be."""
    large = encode_message(message_annotations={Symbol("x-opt-mine"): "m" * 950}, body=b"large")
    await at.post("q", b"small")
    receiver, sender = await at.receiver("q"), await at.sender("q")
    await tries(at, receiver, "1", "2", "3", "4", *["4"] * 20)
    receiver.settle(await one_more(at, receiver), Accepted())
    sender.send([Sendable(large)])
    receiver.settle(await one_more(at, receiver), modified("mine", 940))
    (last,) = await one_more(at, receiver)
    assert Message(last.payload).message_annotations == {Symbol("x-opt-mine"): "n" * 940}


@with_little_room
async def test_in_a_transaction_it_is_told_at_once(at: Served) -> None:
    """Not at the discharge, which would have to fail for it."""
    await at.post("q", b"body")
    control, receiver = Control(at), await at.receiver("q")
    state = within(await control.declare(), modified("much", 2_000))
    receiver.dispose(await one_more(at, receiver), state, False)
    await at.settle()
    assert at.condition() == TOO_MUCH
    receiver = await at.receiver("q", 0, "next")
    (again,) = await one_more(at, receiver)
    assert Message(again.payload).message_annotations is None

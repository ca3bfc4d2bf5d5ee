"""Messages whose sections are not as the standard says, without a socket: refused wherever messages are
taken, and harmless where a store has them from before.
"""

from __future__ import annotations

import struct

import pytest

from amqp_broker.configuration import HalfGroupConfig, QueuePolicy
from amqp_broker.frames import (
    Accepted,
    Coordinator,
    Message,
    Modified,
    Properties,
    Rejected,
    Source,
    TransactionalState,
    encode_message,
    encode_section,
)
from amqp_broker.operations.posting import Posting
from amqp_broker.origin import OF_THE_BROKER
from amqp_broker.persistence import Record, Store
from amqp_broker.queue import Queue
from amqp_broker.retained.logs import Page, QueueLog
from amqp_broker.testing import memory_config
from tests.frames.test_message_check import MALFORMED, MALFORMED_BODIES, nested
from tests.links.pair import Message as Sendable
from tests.support.by_hand import Served, at_hand, text
from tests.support.retained import filters

DATA = encode_message(body=b"x")
PAYLOADS = {name: section + DATA for name, section in MALFORMED.items()} | MALFORMED_BODIES
BAD = Sendable(PAYLOADS["annotations with a count of 2^32-1"])
DECODE_ERROR = "amqp:decode-error"


@pytest.mark.parametrize("name", PAYLOADS)
@at_hand()
async def test_a_malformed_message_is_rejected_and_harms_no_other(at: Served, name: str) -> None:
    """What came before it and behind it in the same read is taken, and the link and its session go on."""
    sender = await at.sender("q")
    queue = at.context("up").queue
    sender.send([text(b"1"), Sendable(PAYLOADS[name]), text(b"2"), Sendable(PAYLOADS[name]), text(b"3")])
    await at.settle()
    assert sorted(at.conditions) == ["accepted"] * 3 + [DECODE_ERROR] * 2
    assert [Message(record.body).body_sections()[0].value for record in queue.backlog.take(9)] == [
        b"1", b"2", b"3"
    ]  # fmt: skip
    assert not at.detached and sender.credit > 0


@pytest.mark.parametrize("source", [None, Source(outcomes=("amqp:accepted:list",))])
@at_hand()
async def test_who_would_not_hear_of_it_is_detached(at: Served, source: Source | None) -> None:
    """A settled message, and a source that takes no `rejected`: that link ends, and no other one. What came
    before is taken, what came behind is not.
    """
    other = at.attach_sender("q", "other")
    if source is None:
        sender = at.attach_sender("q", snd_settle_mode=1)
    else:
        sender = at.session.attach_sender("up", source, other.target)
    await at.settle()
    queue = at.context("up").queue
    sender.send([text(b"1"), BAD, text(b"2")])
    await at.settle()
    (gone,) = at.detached
    assert gone.link.name == "up" and gone.error is not None and gone.error.condition == DECODE_ERROR
    other.send([text(b"3")])
    await at.settle()
    assert at.conditions[-1] == "accepted" and queue.message_count == 2


@at_hand()
async def test_the_anonymous_terminus_refuses_it_as_a_queue_does(at: Served) -> None:
    """Also where it is the properties that cannot be read, so that no node is found."""
    await at.broker.nodes.queues.create("q")
    sender = await at.sender(None)
    to = encode_section("properties", Properties(to="q"))
    bad = [
        PAYLOADS["properties with fourteen fields"],
        MALFORMED["annotations with an odd count"] + to + DATA,
        to + MALFORMED["application-properties with a list"] + DATA,
        PAYLOADS["properties with a described address"],
    ]
    sender.send([Sendable(each) for each in (*bad, to + DATA)])
    await at.settle()
    assert sorted(at.conditions) == ["accepted", *[DECODE_ERROR] * 3, "amqp:invalid-field"]
    assert not at.detached


@at_hand()
async def test_in_a_transaction_it_is_a_refused_posting(at: Served) -> None:
    """The sender is told in the transaction's state, which takes nothing more; the link goes on."""
    control = at.session.attach_sender("control", Source(), Coordinator())
    sender = await at.sender("q")
    control.send([Sendable(bytes.fromhex("005377" "005331" "45"))])  # declare
    await at.settle()
    (declared,) = at.outcomes
    at.outcomes.clear()
    state = TransactionalState(txn_id=declared.txn_id)
    sender.send_in([text(b"1"), BAD, text(b"2")], state)
    await at.settle()
    assert {each.txn_id for each in at.outcomes} == {declared.txn_id}
    told = [each.outcome for each in at.outcomes]
    assert [type(each) for each in told] == [Accepted, Rejected, Rejected]
    assert [each.error.condition for each in told[1:]] == [DECODE_ERROR, "amqp:transaction:rollback"]
    assert not at.detached


@pytest.mark.parametrize("name", PAYLOADS)
@at_hand(memory_config())
async def test_it_is_no_half_message(at: Served, name: str) -> None:
    """The put is rejected, so that no check and no commit meets it."""
    sender = await at.sender("$half/g/q")
    put = encode_section("properties", Properties(message_id="h")) + DATA
    payload = PAYLOADS[name]
    if name in MALFORMED_BODIES:
        payload = put[: -len(DATA)] + payload
    elif "application" in name:
        payload = put[: -len(DATA)] + payload
    elif "properties" not in name:
        payload = payload[: -len(DATA)] + put
    sender.send([Sendable(payload), Sendable(put)])
    await at.settle()
    assert sorted(at.conditions) == ["accepted", DECODE_ERROR] and not at.detached


@at_hand(memory_config(half_groups=(HalfGroupConfig(name="g", first_check_ms=1, retry_ms=60_000),)))
async def test_a_check_about_a_half_message_repeats_its_body_unread(at: Served) -> None:
    """What is inside of a body is the receiver's to judge: whatever it is, the check is asked."""
    sender = await at.sender("$half/g/q")
    body = b"\x00\x53\x77\xc0\x03\x01\xa1\xff"  # a list whose string is longer than the list
    sender.send([Sendable(encode_section("properties", Properties(message_id="h")) + body)])
    await at.settle()
    at.broker.clock._began_ms += 1_000  # time passes
    await at.receiver("$half-check/g", 1)
    assert at.conditions == ["accepted"]
    (check,) = at.received
    assert check.payload.endswith(body)


# Rows of an older version, which took sections by their sizes

OFFSET_KEY = b"\xa3\x0fx-stream-offset"
KEPT = memory_config(
    queue_policies=(
        QueuePolicy(pattern="kept", retention_ms=3_600_000),
        QueuePolicy(pattern="log", kind="log", retention_ms=3_600_000),
    )
)
UNSTAMPABLE = {
    "a count of 2^32-1": MALFORMED["annotations with a count of 2^32-1"],
    "our key in a map that is cut off": b"\x00\x53\x72\xc1\x13\x02" + OFFSET_KEY + b"\xa1",
    "an odd count": MALFORMED["annotations with an odd count"],
    "a long descriptor and no map": b"\x00\x80" + (0x72).to_bytes(8, "big") + b"\xc1\x01\x03",
    "no map at all": b"\x00\x53\x72\xa1\x01x",
}


def deep_with_our_key() -> bytes:
    """Annotations that are valid, but too deep for us, with a key of ours."""
    deep = nested(40)
    entries = OFFSET_KEY + b"\x41" + deep[12:]
    return b"\x00\x53\x72\xd1" + struct.pack(">II", 4 + len(entries), 4) + entries


async def put_as_before(at: Served, queue: Queue, bodies: list[bytes]) -> None:
    """Rows as an older version stored them."""
    records = [Record(0, body, enqueued_at_ms=at.broker.clock.now_ms()) for body in bodies]
    for record in records:
        record.queue_id = queue.queue_id
        record.durable = True
    at.broker.writer.submit(Posting(at.broker.nodes, queue, records, OF_THE_BROKER))
    await at.settle()


@pytest.mark.parametrize("address", ["kept", "log"])
@pytest.mark.parametrize("name", UNSTAMPABLE)
@at_hand(KEPT)
async def test_a_row_that_cannot_be_stamped_is_passed_over_by_who_reads_by_offset(
    at: Served, name: str, address: str
) -> None:
    """It is as missing: who reads on gets what is before and behind it, and who asked for a range is told.
    Nobody else notices, and the next reader gets the same.
    """
    await at.sender(address)
    queue = at.context("up").queue
    await put_as_before(at, queue, [DATA, UNSTAMPABLE[name] + DATA, DATA])
    for link in ("one", "two"):
        at.attach_receiver(Source(address=address, filter=filters("first")), 9, link)
        await at.settle()
    offsets = [Message(each.payload).message_annotations for each in at.received]
    assert [each["x-stream-offset"] for each in map(plainly, offsets)] == [0, 2, 0, 2]
    assert not at.detached
    at.attach_receiver(Source(address=address, filter=filters("first", until=3)), 9, "range")
    await at.settle()
    (gone,) = at.detached
    assert gone.error is not None and gone.error.info is not None
    assert (gone.error.info["asked"].value, gone.error.info["first"].value) == (1, 2)
    assert len(at.received) == 5


@pytest.mark.interpreted
@at_hand(KEPT)
async def test_a_fault_in_a_page_ends_its_connection_and_no_other(
    at: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is: the connection of who asked for the page ends, and who waits behind it has its turn."""
    for address in ("kept", "log"):
        sender = await at.sender(address, f"to {address}")
        sender.send([text(b"1")])
        await at.settle()
    log_id = at.context("to kept").queue.queue_id
    whole = QueueLog.page

    def page(log: QueueLog, store: Store, start: int, messages: int, size: int) -> Page:
        if log.log_id == log_id:
            raise ValueError("a fault of the broker")
        return whole(log, store, start, messages, size)

    monkeypatch.setattr(QueueLog, "page", page)
    behind = at.another()
    for each, address in ((at, "kept"), (behind, "log")):
        each.attach_receiver(Source(address=address, filter=filters("first")), 9, f"from {address}")
    await at.settle()
    assert isinstance(at.connection.fault, ValueError)
    assert behind.bodies() == [b"1"] and not at.received


def plainly(annotations: dict[object, object] | None) -> dict[str, int]:
    """Annotations by plain names, with plain numbers."""
    return {str(key.value): item.value for key, item in (annotations or {}).items()}  # type: ignore[attr-defined]


@at_hand(KEPT)
async def test_annotations_that_are_too_deep_for_us_are_kept_and_stamped(at: Served) -> None:
    """A valid map of an older row: what its entries hold does not matter, only its own entry of our name is
    replaced.
    """
    await at.sender("kept")
    await put_as_before(at, at.context("up").queue, [deep_with_our_key() + DATA])
    at.attach_receiver(Source(address="kept", filter=filters("first")), 9)
    await at.settle()
    (found,) = at.received
    payload = found.payload
    assert payload.count(OFFSET_KEY + b"\x80" + bytes(8)) == 1 == payload.count(b"x-stream-offset")
    assert payload.endswith(nested(40)[12:] + DATA)
    Message(payload).check_sections()


@at_hand()
async def test_a_row_with_malformed_annotations_is_not_annotated(at: Served) -> None:
    """Who says `modified` with annotations is told that it was not done; the message is there for others."""
    await at.sender("q")
    queue = at.context("up").queue
    await put_as_before(at, queue, [MALFORMED["annotations with a string as key"] + DATA])
    receiver = await at.receiver("q", 1)
    receiver.settle(at.received, Modified(message_annotations={"x-opt-seen": 1}))
    await at.settle()
    assert queue.message_count == 1
    at.received.clear()
    await at.receiver("q", 1, "again")
    assert len(at.received) == 1

"""Whatever octets come as a message: taken or refused, and what was taken meets nothing that it could break,
from the journal to a reader by offset, over a restart, to its consumer.
"""

from __future__ import annotations

import tempfile
from typing import Any

import attrs
from hypothesis import example, given
from hypothesis import strategies as st

from amqp_broker.configuration import BrokerConfig, HalfGroupConfig, QueuePolicy
from amqp_broker.frames import Accepted, Header, Message, Modified, Properties, Source, encode_message
from amqp_broker.links import ReceiverLink
from amqp_broker.testing import memory_config, run_with_virtual_clock
from tests.links.pair import Message as Sendable
from tests.strategies import message_parts, messages, mutated
from tests.support.by_hand import Served, served, text
from tests.support.examples import examples
from tests.support.retained import filters

KEPT = QueuePolicy(pattern="kept", retention_ms=3_600_000, events=True)
LOG = QueuePolicy(pattern="log", kind="log", retention_ms=3_600_000, events=True)
GROUP = HalfGroupConfig(name="g", first_check_ms=1, retry_ms=60_000)

# The header may say anything, too: a ttl that is over at once would only hide a message from the rest.
FAMILIES = messages().flatmap(
    lambda data: st.lists(st.just(data) | mutated(st.just(data)), min_size=1, max_size=4)
)
PUTS = message_parts().map(
    lambda parts: encode_message(**{**parts, "properties": Properties(message_id="h", subject="s")})
)


def on_disk(directory: str) -> BrokerConfig:
    """Everything that looks into messages is on."""
    config = memory_config(queue_policies=(KEPT, LOG), half_groups=(GROUP,))
    return attrs.evolve(config, data_dir=directory, memory=False)


def sound(at: Served) -> None:
    """Nothing met a fault, and every message that went out is well-formed."""
    assert at.connection.fault is None and at.broker.writer.failure is None
    assert not at.detached
    for delivery in at.received:
        Message(delivery.payload).check()


async def read_all(at: Served, *addresses: str) -> dict[str, int]:
    """How many messages a reader by offset gets from the first on."""
    counts = {}
    for address in addresses:
        at.received.clear()
        source = Source(address=address, filter=filters("first"))
        receiver = at.attach_receiver(source, 99, f"reads {address}")
        await at.settle()
        sound(at)
        counts[address] = len(at.received)
        await leave(at, receiver)
    return counts


async def leave(at: Served, receiver: ReceiverLink) -> None:
    """End a link of ours."""
    receiver.detach()
    await at.settle()
    at.detached.clear()


async def post(at: Served, payloads: list[bytes], address: str) -> int:
    """Sends them, each after a message that is fine; how many of them were accepted."""
    at.outcomes.clear()
    sender = at.attach_sender(address, f"to {address}")
    await at.settle()
    for payload in payloads:
        sender.send([text(b"fine"), Sendable(payload)])
    await at.settle()
    assert len(at.outcomes) == 2 * len(payloads)
    assert {*at.conditions} <= {"accepted", "amqp:decode-error", "amqp:invalid-field"}
    return at.conditions.count("accepted")


async def consume(at: Served, outcome: Any, name: str) -> int:
    """How many messages a consumer of `kept` gets; all of them have this outcome."""
    at.received.clear()
    receiver = at.attach_receiver("kept", 99, name)
    await at.settle()
    sound(at)
    count = len(at.received)
    if count:
        receiver.settle(at.received, outcome)
    receiver.set_credit(0)
    await at.settle()
    sound(at)
    await leave(at, receiver)
    return count


@examples(15)
@given(FAMILIES)
@example([encode_message(header=Header(delivery_count=2**32 - 1), body=b"x")])
@example([encode_message(header=Header(ttl=2**32 - 1), body=b"x")])
def test_what_is_taken_is_told_kept_read_and_delivered(payloads: list[bytes]) -> None:
    """Post, journal, reading by offset, an outcome that annotates, a restart, and all of it again."""

    async def run() -> None:
        with tempfile.TemporaryDirectory() as directory:
            config = on_disk(directory)
            async with served(config) as at:
                kept = await post(at, payloads, "kept")
                logged = await post(at, payloads, "log")
                before = await read_all(at, "kept", "log", "$events")
                assert (before["kept"], before["log"]) == (kept, logged)
                failed = Modified(delivery_failed=True, message_annotations={"x-opt-seen": 1})
                live = await consume(at, failed, "first")
                assert live <= kept
                await read_all(at, "kept")
            async with served(config) as at:
                after = await read_all(at, "kept", "log", "$events")
                assert (after["kept"], after["log"]) == (kept, logged)
                assert await consume(at, Accepted(), "second") <= live
                assert (await read_all(at, "kept"))["kept"] == kept

    run_with_virtual_clock(run)


@examples(15)
@given(st.lists(PUTS | mutated(PUTS), min_size=1, max_size=2))
def test_a_half_message_that_was_put_can_be_asked_about_shown_and_committed(payloads: list[bytes]) -> None:
    """Whatever it is, a check about it is a message, and so is what is delivered."""

    async def run() -> None:
        async with served(memory_config(queue_policies=(KEPT,), half_groups=(GROUP,))) as at:
            sender = at.attach_sender("$half/g/kept", "puts")
            await at.settle()
            sender.send([Sendable(each) for each in payloads])
            await at.settle()
            taken = at.conditions.count("accepted")
            at.broker.clock._began_ms += 1_000  # time passes
            at.attach_receiver("$half-check/g", 9, "checks")
            await at.settle()
            sound(at)
            assert bool(at.received) == bool(taken)
            decides = at.attach_sender("$half-resolve/g", "decides")
            await at.settle()
            at.outcomes.clear()
            decides.send([Sendable(commit_of(check.payload)) for check in at.received])
            await at.settle()
            count = len(at.received)
            assert at.conditions == ["accepted"] * count
            assert await consume(at, Accepted(), "gets") <= count
            assert (await read_all(at, "kept"))["kept"] == count

    run_with_virtual_clock(run)


def commit_of(check: bytes) -> bytes:
    """The decision to commit what a check is about."""
    properties = Message(check).properties
    assert properties is not None
    return encode_message(properties=Properties(correlation_id=properties.correlation_id, subject="commit"))

"""UPDATE of `$management`: what can be changed while the broker runs, and what is refused."""

from __future__ import annotations

import io
import json
from typing import Any

import attrs
import pytest

from amqp_broker.configuration import AccessRule, BrokerLimits, LoggingConfig, QueuePolicy
from amqp_broker.frames import Modified
from amqp_broker.log_setup import configure_logging
from amqp_broker.management.changing import LIMITS, TRIES
from amqp_broker.testing import memory_config
from tests.support.by_hand import text
from tests.support.managing import Asking, asks
from tests.support.topics import publish, subscribe, topic

FAILED = Modified(delivery_failed=True)
POLICIES = (
    QueuePolicy(pattern="small", max_messages=2),
    QueuePolicy(pattern="line", kind="log", retention_ms=10_000),
)
here = asks(memory_config(queue_policies=POLICIES))


@here
async def test_a_queue_gets_more_room(one: Asking) -> None:
    """Who waits for credit has it at once; the reply says what holds now."""
    at = one.at
    link = await at.sender("small")
    assert link.send([text(b"1"), text(b"2")]) == 2
    await at.settle()
    assert link.credit == 0
    found = await one.body("UPDATE", "queue", {"max_messages": 5}, name="small")
    assert (found["max_messages"], found["messages"]) == (5, 2)
    assert link.credit == 3
    assert link.send([text(b"%d" % number) for number in range(3)]) == 3
    await at.settle()
    assert (at.queue("small").message_count, link.credit) == (5, 0)


@here
async def test_a_queue_gets_less_room(one: Asking) -> None:
    """What is there stays; nothing comes until there is room again. 0 is no bound."""
    at = one.at
    await at.post("q", b"1", b"2", b"3")
    assert (await one.body("UPDATE", "queue", {"max_messages": 2}, name="q"))["full"] is True
    link = await at.sender("q")
    assert (link.credit, at.queue().message_count) == (0, 3)
    assert (await one.body("UPDATE", "queue", {"max_messages": 0}, name="q"))["full"] is False
    assert link.credit > 0


@here
async def test_tries_are_judged_by_what_holds_now(one: Asking) -> None:
    """A message that failed once is dead where one try is allowed; a delay is for what fails later."""
    at = one.at
    await at.post("q", b"1", b"2")
    told = {"max_deliveries": 1}
    assert (await one.body("READ", "queue", name="q"))["max_deliveries"] == 10
    assert (await one.body("UPDATE", "queue", told, name="q"))["max_deliveries"] == 1
    at.take()
    link = await at.receiver("q", 1)
    link.dispose(at.take(), FAILED, True)
    await at.settle()
    assert at.queue("dead-letters").message_count == 1
    await one.body("UPDATE", "queue", {"max_deliveries": 0, "redelivery_delay_ms": 5_000}, name="q")
    at.take()
    link.flow(1)
    await at.settle()
    link.dispose(at.take(), FAILED, True)
    link.flow(1)
    await at.settle()
    assert at.take() == []
    await at.pass_time(6)
    assert len(at.take()) == 1


@here
async def test_what_was_read_can_be_said_again(one: Asking) -> None:
    """With one attribute that differs: the others are as they are."""
    await one.at.post("q", b"1")
    read = await one.body("READ", "queue", name="q")
    assert await one.body("UPDATE", "queue", read, name="q") == read
    changed = await one.body("UPDATE", "queue", {**read, "max_bytes": 77}, name="q")
    assert changed == {**read, "max_bytes": 77, "changed": ["max_bytes"]}


@pytest.mark.parametrize(
    ("told", "status", "why"),
    [
        ({}, 400, "body: expected a map of attributes with their new values, got none"),
        ({"colour": "red"}, 400, "expected some of max_messages, "),
        ({"exclusive": True}, 400, "got 'exclusive'"),
        ({"messages": 7}, 409, "messages can't be changed"),
        ({"events": True}, 409, "events can't be changed"),
        ({"max_messages": -1}, 400, "max_messages = -1: must be a whole number from 0"),
        ({"max_messages": "many"}, 400, 'max_messages = "many": must be'),
        ({"max_messages": 3, "max_deliveries": True}, 400, "max_deliveries = true: must be"),
        ({"redelivery_delay_ms": 700_000}, 400, "redelivery_delay_ms"),
    ],
)
def test_what_cannot_be_is_refused_as_a_whole(told: dict[str, Any], status: int, why: str) -> None:
    """Nothing of it holds."""

    @here
    async def run(one: Asking) -> None:
        await one.at.post("q", b"1")
        before = await one.body("READ", "queue", name="q")
        got, said = await one.refused("UPDATE", "queue", told, name="q")
        assert got == status and why in said
        assert await one.body("READ", "queue", name="q") == before

    run()


@here
async def test_a_log_has_no_bounds_to_change(one: Asking) -> None:
    """What is kept bounds it, and that is the store's."""
    await one.at.post("line", b"1")
    status, why = await one.refused("UPDATE", "queue", {"max_messages": 5}, name="line")
    assert status == 400 and "a log takes every message" in why


@here
async def test_nothing_else_is_changed(one: Asking) -> None:
    """What there is no entity for, and types of which nothing can be."""
    assert (await one.refused("UPDATE", "queue", {"max_bytes": 1}, name="nothing"))[0] == 404
    status, why = await one.refused("UPDATE", "broker", {"store_id": "x"}, name="self")
    assert status == 501 and why.startswith("expected one of READ, RELOAD for a broker")


@here
async def test_the_queue_for_dead_letters_is_never_without_bounds(one: Asking) -> None:
    """0 is what the limits of the broker say."""
    one.at.broker.nodes.queues.find("dead-letters") or await one.ask("CREATE", "queue", name="dead-letters")
    before = await one.body("READ", "queue", name="dead-letters")
    assert before["max_messages"] == BrokerLimits().dead_letter_messages
    found = await one.body("UPDATE", "queue", {"max_messages": 3}, name="dead-letters")
    assert found == {**before, "max_messages": 3, "changed": ["max_messages"]}
    assert await one.body("UPDATE", "queue", {"max_messages": 0}, name="dead-letters") == before


@here
async def test_a_subscription_is_a_queue_in_this(one: Asking) -> None:
    """Its bounds are its own; those of others stay."""
    at = one.at
    await subscribe(at, topic("news"), "one", credit=0)
    await subscribe(at.another(), topic("news"), "two", credit=0)
    (first, second) = [row[0] for row in (await one.body("QUERY", entityType="subscription"))["results"]]
    found = await one.body("UPDATE", "subscription", {"max_messages": 1}, identity=first)
    assert found["max_messages"] == 1
    assert (await one.body("READ", "subscription", identity=second))["max_messages"] == 0
    await publish(at, "news", b"1")
    assert at.queue(first).full()


@here
async def test_limits_that_are_looked_at_each_time(one: Asking) -> None:
    """Each is told back, and holds for what comes next: a subscription is one too many now."""
    for name in LIMITS:
        found = await one.body("UPDATE", "configuration", {"value": 3}, name=f"limits.{name}")
        assert (found["value"], found["is_default"]) == (3, False)
        assert found["at_start"] == getattr(BrokerLimits(), name)
        assert getattr(one.at.broker.nodes.config.limits, name) == 3
    at = one.at
    await one.body("UPDATE", "configuration", {"value": 1}, name="limits.max_subscriptions")
    await subscribe(at, topic("news"), "one")
    await at.receiver(topic("news"), 1, "two")
    assert at.condition() == "amqp:resource-limit-exceeded"


@here
async def test_other_keys_are_for_the_start(one: Asking) -> None:
    """They are told with their value, and refused with the way to change them; a wrong value is refused."""
    status, why = await one.refused("UPDATE", "configuration", {"value": 1}, name="limits.max_nodes")
    assert status == 409 and "change the file for that" in why and "logging.level" in why
    for key, value in (("limits.max_cursors", 0), ("limits.max_cursors", "x"), ("logging.level", "loud")):
        status, why = await one.refused("UPDATE", "configuration", {"value": value}, name=key)
        assert status == 400 and why.startswith(f"{key} = ")


def test_the_log_says_more_and_who_asked() -> None:
    """From the next event on: also what was changed."""
    written = io.StringIO()
    quiet = memory_config(logging=LoggingConfig(level="error", format="json"))
    configure_logging(quiet, written)

    @asks(quiet)
    async def run(one: Asking) -> None:
        await one.body("UPDATE", "queue", {"max_bytes": 80_000}, name="replies")
        assert written.getvalue() == ""
        await one.body("UPDATE", "configuration", {"value": "debug"}, name="logging.level")
        await one.body("UPDATE", "queue", {"max_bytes": 90_000}, name="replies")

    run()
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    done = [line for line in lines if line["event"] == "audit.done"]
    assert [(each["type"], each["changed"]) for each in done] == [
        ("configuration", "value = 'debug'"), ("queue", "max_bytes = 90000"),
    ]  # fmt: skip


def test_what_was_done_and_what_was_refused_is_audited() -> None:
    """With who asked: by a logger of its own."""
    written = io.StringIO()
    rules = (
        AccessRule(users=("anonymous",), actions=("connect", "send", "receive", "create")),
        AccessRule(users=("anonymous",), actions=("manage-write",), nodes=("mine",)),
    )
    audited = memory_config(logging=LoggingConfig(format="json"), access_rules=rules)
    configure_logging(audited, written)

    @asks(audited)
    async def run(one: Asking) -> None:
        await one.ask("CREATE", "queue", {}, name="mine")
        await one.ask("CREATE", "queue", {}, name="yours")
        await one.ask("QUERY")

    run()
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    told = [line for line in lines if line["event"].startswith("audit.")]
    assert [(each["event"], each["principal"]) for each in told] == [
        ("audit.done", "anonymous"), ("audit.refused", "anonymous"), ("audit.refused", "anonymous"),
    ]  # fmt: skip
    assert told[0]["identity"] == "mine" and "yours" in told[1]["reason"]


def test_tries_are_keys_of_a_queue() -> None:
    """Nothing here has a name that the configuration has not."""
    assert {*TRIES} <= {field.name for field in attrs.fields(QueuePolicy)}

"""The checks of half messages about which the broker asks."""

from __future__ import annotations

import time

from client import TIMEOUT_S, Receiver, SettleSecond, expect, settle
from half_group import (
    ACCEPTED,
    AT_ONCE,
    BY_OUTCOME,
    CONFLICT,
    FOUR_HOURS_MS,
    SOON,
    Halves,
    asked,
    asked_about,
    halves,
    resolution,
)  # fmt: skip
from proton import Condition, Delivery

CHECK_BODY_BYTES = 256 * 1024
LARGE_BODY_BYTES = 1 << 20


@halves("asked; the check says everything; answered by message")
def asked_by_message(group: Halves) -> None:
    receiver = group.checker()
    group.prepared("1", "the body", color="blue", half_first_check_ms=200)
    delivery, message = asked(receiver, "1")
    expect("body, reply-to", ("the body", group.resolve_at), (message.body, message.reply_to))
    expect("message-id", True, isinstance(message.id, str) and message.id != "1")
    named = message.properties
    expected = {
        "color": "blue",
        "half_id": "1",
        "half_group": group.group,
        "half_destination": group.client.queue,
    }
    expect("application properties", expected, {name: named.get(name) for name in expected})
    expect("half_attempt", 1, int(named["half_attempt"]))
    expect("half_age_ms is 200 or a little more", True, 200 <= named["half_age_ms"] < 20_000)
    late_ms = named["half_deadline"] - time.time() * 1000 - FOUR_HOURS_MS
    expect("half_deadline in 4 h", True, abs(late_ms) < 60_000)
    expect("answer", ACCEPTED, group.tell(message.reply_to, resolution(message.correlation_id, "commit")))
    wait_settled(group, delivery)
    expect("the check that was out", Delivery.RELEASED, delivery.remote_state)
    delivery.settle()
    expect("queue", ["the body"], group.queued())


def wait_settled(group: Halves, delivery: Delivery) -> None:
    group.client.connection.wait(
        lambda: delivery.settled, timeout=TIMEOUT_S, msg="the check was not settled by the broker"
    )


@halves("accepting automatically, or rejecting, decides nothing without by-outcome")
def outcomes_ignored(group: Halves) -> None:
    # Had the accept committed, the rollback behind it would be a conflict.
    accepting = Receiver(group.client, group.check_at, 1, auto_accept=True)
    group.prepared("1", "accepted", **SOON)
    asked(accepting, "1")
    expect("rollback", ACCEPTED, group.roll_back("1"))
    accepting.close()
    receiver = group.checker()
    group.prepared("2", "rejected", **SOON)
    settle(asked(receiver, "2")[0], Delivery.REJECTED)
    expect("commit", ACCEPTED, group.commit("2"))
    expect("queue", ["rejected"], group.queued())


@halves("by outcome: accepted commits, also automatically")
def accepted(group: Halves) -> None:
    receiver = Receiver(group.client, group.check_at + BY_OUTCOME, 1, auto_accept=True)
    consumer = group.client.receiver()
    group.prepared("1", **SOON)
    asked(receiver, "1")
    expect("delivered", "body", consumer.accept().body)
    expect("commit", ACCEPTED, group.commit("1"))
    condition, error = group.answer(group.resolve_at, resolution("1", "rollback"))
    expect("rollback", CONFLICT, condition)
    expect("half_resolved_by", True, "half_resolved_by=check" in error.description)


@halves("by outcome: rejected rolls back; the settlement comes after it is stored")
def rejected(group: Halves) -> None:
    receiver = group.checker(way=BY_OUTCOME, options=SettleSecond())
    group.prepared("1", **SOON)
    delivery, _ = asked(receiver, "1")
    delivery.local.condition = Condition("app:failed", "no money")
    delivery.update(Delivery.REJECTED)
    wait_settled(group, delivery)
    expect("state", Delivery.REJECTED, delivery.remote_state)
    delivery.settle()
    expect("afterwards", (ACCEPTED, CONFLICT), (group.roll_back("1"), group.commit("1")))
    expect("queue", [], group.queued())


@halves("by outcome: released is asked again after a second as the same attempt; modified not")
def released(group: Halves) -> None:
    receiver = group.checker(way=BY_OUTCOME)
    group.prepared("1", "released", **SOON)
    group.prepared("2", "modified", **SOON)
    (first, _), (second, _) = asked_about(receiver, "1", "2")
    settle(first, Delivery.RELEASED)
    second.local.failed = True
    settle(second, Delivery.MODIFIED)
    again, message = asked(receiver, "1")
    expect("half_attempt", 1, int(message.properties["half_attempt"]))
    again.local.undeliverable = True
    settle(again, Delivery.MODIFIED)
    expect("by message", (ACCEPTED, ACCEPTED), (group.commit("1"), group.roll_back("2")))
    expect("queue", ["released"], group.queued())


@halves("by outcome: a connection that ends decides nothing; another is asked")
def ended(group: Halves) -> None:
    with group.client.another() as other:
        there = Halves(other).checker(way=BY_OUTCOME)
        group.prepared("1", **AT_ONCE)
        asked(there, "1")
    here = group.checker()
    _, message = asked(here, "1")
    expect("half_attempt", 1, int(message.properties["half_attempt"]))
    expect("rollback", ACCEPTED, group.roll_back("1"))
    expect("queue", [], group.queued())


@halves("no credit, no check; asked at once when there is some")
def credit(group: Halves) -> None:
    receiver = group.checker(credit=0)
    group.prepared("1", **AT_ONCE)
    receiver.link.flow(1)
    delivery, message = asked(receiver, "1")
    expect("half_attempt", 1, int(message.properties["half_attempt"]))
    settle(delivery, Delivery.ACCEPTED)
    group.prepared("2", **AT_ONCE)
    group.client.flush()
    expect("checks beyond the credit", 0, receiver.waiting)
    receiver.link.flow(1)
    asked(receiver, "2")


@halves("drain of a link of checks: what is due comes, then the credit is gone")
def drain(group: Halves) -> None:
    receiver = group.checker(credit=0)
    receiver.link.flow(5)
    expect("none is due", 0, receiver.drained())
    group.prepared("1", **AT_ONCE)
    group.client.flush()
    expect("checks without credit", 0, receiver.waiting)
    receiver.link.flow(5)
    expect("due", 1, receiver.drained())
    settle(asked(receiver, "1")[0], Delivery.ACCEPTED)


@halves("a large body comes whole when it is committed, and is left out of the check")
def large(group: Halves) -> None:
    receiver = group.checker()
    fitting, whole = "x" * (CHECK_BODY_BYTES - 1024), b"half" * (LARGE_BODY_BYTES // 4)
    group.prepared("fitting", fitting, **SOON)
    group.prepared("large", whole, **SOON)
    (_, first), (_, second) = asked_about(receiver, "fitting", "large")
    expect("body that fits", True, first.body == fitting)
    omitted = first.properties.get("half_body_omitted"), second.properties.get("half_body_omitted")
    expect("half_body_omitted", (None, True), omitted)
    expect("commit", ACCEPTED, group.commit("large"))
    expect("same octets", True, group.client.receiver().accept().body == whole)

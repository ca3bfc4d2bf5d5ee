"""The truthful day, and the same day with a fault: one world for each, all in one log.

A fault is a row of a table: what changes its world, and what the audits must say about it, `kind: key`, with
`{w}` for the name of the world and `{at}` for what the change returns. What they say beyond that is invented.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from amqp_broker.pipeline.event_schema import COMMITTED, ROLLED_BACK
from tests.pipeline.truthful_day import (
    Event,
    World,
    clock,
    decide,
    half,
    numbered,
    row_of_set,
    truthful_world,
)

Expected = set[tuple[str, ...]]
Row = tuple[Callable[[Any], object], *tuple[str, ...]]


def known(world: World) -> dict[str, Any]:
    """Fields of a decision by the producer about a half message of this world."""
    return {"group": world.name, "address": world.at("paid"), "outcome": COMMITTED, "resolver": "producer"}


def findings(found: Iterable[str], world: str, at: object = None) -> Expected:
    """(kind, key) of each."""
    return {tuple(said.format(w=world, at=at).split(": ", 1)) for said in found}


def all_worlds() -> tuple[list[World], dict[str, Expected]]:
    """A truthful world, and one for each fault; what is to be found in each: audit, kind, key."""
    ticks = clock()
    worlds, expected = [truthful_world("truth", ticks)], {"truth": Expected()}
    for audit, faults in FAULTS_OF.items():
        for name, (plant, *found) in faults.items():
            world = truthful_world(name, ticks)
            at = plant(world)
            expected[name] = {(audit, *said) for said in findings(found, name, at)}
            worlds.append(world)
    return worlds, expected


def log_with_faults() -> tuple[list[Event], Expected]:
    """One log of all worlds, and everything that is to be found."""
    worlds, expected = all_worlds()
    return numbered(worlds), set().union(*expected.values())


def earlier(event: Event, **by: int) -> Event:
    """It has happened before that."""
    event["time"] -= timedelta(**by)
    return event


def _wrong_way_round(world: World) -> None:
    three, four = (world.find(type="put", seq_stream="till 1", seq_id=1, seq_no=n)[0] for n in (3, 4))
    three["seq_no"], four["seq_no"] = 4, 3


def _leave_a_number_out(world: World) -> None:
    for event in world.find(type="put", seq_stream="till 2"):
        event["seq_no"] += event["seq_no"] > 2


def _come_again(world: World, stream: str, seq_id: int, number: int) -> None:
    offset = world.put("stream", seq_stream=stream, seq_id=seq_id, seq_no=number)
    world.consume("stream", offset)


def _visible(world: World, half_id: str) -> None:
    about = {"group": world.name, "half_id": half_id, "message_id": None, "bytes": 120}
    world.consume("paid", world.put("paid", "publish", **about))


def _about(world: World, epoch: int) -> dict[str, str | int]:
    return {"group": world.name, "producer": "enrich", "epoch": epoch}


def _seal(world: World, epoch: int, set_id: str) -> Event:
    return world.say("seal", **_about(world, epoch), set_id=set_id, count=1)


def _visible_undecided(world: World) -> None:
    _seal(world, 4, "4-0")
    world.consume("rich", row_of_set(world, 4, "4-0", 0))


def _wait_for_hours(world: World) -> str:
    put = world.find(type="put", address=world.at("orders"), offset=0)[0]
    return f"{earlier(put, hours=2)['time']:%Y-%m-%d %H:%M}"


LEDGER: dict[str, Row] = {
    # Another message has the number of one.
    "number_given_twice": (
        lambda w: w.again(w.find(address=w.at("plain"), offset=4)[0], message_id="other"),
        "number-twice: {w}.plain offset 4"),
    # Something is delivered that never came in.
    "phantom": (lambda w: w.consume("plain", 99), "phantom: {w}.plain offset 99"),
    # A message came out, and its put is not in the log.
    "put_is_missing": (lambda w: w.drop("plain", 4, "put"),
        "phantom: {w}.plain offset 4", "offset-missing: {w}.plain offset 4 to 4"),
    # Nothing is known of a message between two others.
    "number_left_out": (lambda w: w.drop("plain", 5), "offset-missing: {w}.plain offset 5 to 5"),
    # A message came in, and nothing more.
    "never_came_out": (lambda w: w.drop("plain", 7, "deliver", "settle"), "lost: {w}.plain offset 7"),
    "delivered_before_it_was_there": (lambda w: w.swap("plain", ("put", 12), ("deliver", 12)),
        "too-early: {w}.plain offset 12"),
    # Accepted, and delivered once more.
    "delivered_again": (lambda w: w.deliver("plain", 3), "delivered-again: {w}.plain offset 3"),
    # Two consumers accepted one message.
    "accepted_twice": (lambda w: w.settle("plain", 3), "settled-twice: {w}.plain offset 3"),
    # Two consumers disagree about one message.
    "accepted_and_rejected": (lambda w: w.settle("plain", 6, "rejected"),
        "settled-twice: {w}.plain offset 6"),
    # Somebody was given a message that a log had archived.
    "taken_from_a_log": (lambda w: w.deliver("log", 1), "archived-taken: {w}.log offset 1"),
    # The delivery was not noted, and the outcome was.
    "accepted_out_of_a_log": (lambda w: w.settle("log", 3), "archived-taken: {w}.log offset 3"),
    # A log has no holes either.
    "missing_in_a_log": (lambda w: w.drop("log", 1, "put"), "offset-missing: {w}.log offset 1 to 1"),
    # The second message of a pair came in before the first.
    "out_of_order": (lambda w: w.swap("plain", ("put", 4), ("put", 5)), "order: {w}.plain offset 5"),
    # A number of a stream was accepted again.
    "sequence_duplicate": (lambda w: _come_again(w, "till 2", 7, 4),
        "sequence-duplicate: {w}.stream stream till 2 id 7 number 4"),
    # Numbers 3 and 4 of a stream were accepted the wrong way round.
    "sequence_order": (_wrong_way_round,
        "sequence-gap: {w}.stream stream till 1 id 1 number 4",
        "sequence-order: {w}.stream stream till 1 id 1 number 3",
        "sequence-gap: {w}.stream stream till 1 id 1 number 5"),
    # A lower id was accepted after a higher one.
    "old_sequence_comes_back": (lambda w: _come_again(w, "till 1", 1, 7),
        "sequence-order: {w}.stream stream till 1 id 1 number 7"),
    "sequence_gap": (_leave_a_number_out, "sequence-gap: {w}.stream stream till 2 id 7 number 4"),
    # A message ended before it came, by the clock.
    "clock_went_back": (
        lambda w: earlier(w.find(type="settle", address=w.at("plain"), offset=3)[0], seconds=3),
        "clock-backwards: {w}.plain offset 3"),
    # The same message-id of the same container under two numbers.
    "sent_twice": (
        lambda w: w.find(type="put", address=w.at("plain"), offset=9)[0].update(message_id="plain-2"),
        "duplicated: {w}.plain message-id plain-2"),
}  # fmt: skip
DEAD: dict[str, Row] = {
    # Given up as undeliverable, and accepted.
    "dead_and_accepted": (lambda w: w.settle("orders", 1), "dead-accepted: {w}.orders offset 1"),
    "dead_twice": (lambda w: w.again(w.find(type="dead")[0]), "dead-twice: {w}.orders offset 0"),
    "expired_twice": (lambda w: w.again(w.find(type="expire")[0]),
        "dead-twice: {w}.orders offset 2"),
    "delivered_after_death": (lambda w: w.deliver("orders", 0),
        "delivered-after-death: {w}.orders offset 0"),
    # A message was given up that never came in.
    "dead_unknown": (lambda w: w.say("dead", address=w.at("orders"), offset=77, reason="no such customer"),
        "dead-unknown: {w}.orders offset 77"),
    "dead_without_reason": (lambda w: w.find(type="dead")[1].update(reason=""),
        "dead-without-reason: {w}.orders offset 1"),
}  # fmt: skip
HALVES: dict[str, Row] = {
    # Nobody decided for five hours.
    "half_unresolved": (lambda w: earlier(half(w, "forgotten"), hours=5),
        "unresolved: group {w} half-id forgotten"),
    # Committed, and then rolled back.
    "half_contradictory": (lambda w: decide(w, "h1", ROLLED_BACK, "admin"),
        "contradictory: group {w} half-id h1"),
    "half_rolled_back_twice": (lambda w: decide(w, "back", ROLLED_BACK),
        "decided-twice: group {w} half-id back"),
    "half_visible_undecided": (lambda w: _visible(w, "open"), "visible-undecided: group {w} half-id open"),
    "half_visible_rolled_back": (lambda w: _visible(w, "back"),
        "visible-rolled-back: group {w} half-id back"),
    # One commit, two messages.
    "half_visible_twice": (lambda w: _visible(w, "h2"), "visible-twice: group {w} half-id h2"),
    # Committed, and nothing came of it.
    "half_not_visible": (
        lambda w: w.say("decide", **known(w), half_id="open", offset=90),
        "not-visible: group {w} half-id open"),
    # A decision about something that was never put.
    "half_decided_unknown": (lambda w: decide(w, "nobody's", ROLLED_BACK, "admin"),
        "half-unknown: group {w} half-id nobody's"),
    # An answer that nobody asked for.
    "half_answer_without_check": (
        lambda w: w.say("answer", group=w.name, half_id="h3", attempt=1),
        "answer-without-check: group {w} half-id h3"),
    # Decided, and asked about two minutes later.
    "half_asked_after_decision": (
        lambda w: earlier(w.say("check", group=w.name, half_id="h3", attempt=1), minutes=-2),
        "asked-after: group {w} half-id h3"),
    # Sealed with three messages, and two became visible.
    "set_torn": (lambda w: w.find(type="seal", set_id="3-1")[0].update(count=3),
        "set-torn: group {w} producer enrich epoch 3 set 3-1"),
    # Visible, and its seal never came.
    "set_unsealed": (lambda w: w.events.remove(w.find(type="seal", set_id="3-0")[0]),
        "set-unsealed: group {w} producer enrich epoch 3 set 3-0"),
    "set_undecided": (_visible_undecided, "set-undecided: group {w} producer enrich epoch 4 set 4-0"),
    "set_void_and_visible": (
        lambda w: w.say("void", **_about(w, 3), set_id="3-0", resolver="producer", reason="aborted"),
        "set-void-and-visible: group {w} producer enrich epoch 3 set 3-0"),
    # Its epoch was decided, and nothing became of the set.
    "set_left": (lambda w: w.events.remove(w.find(type="void")[0]),
        "set-left: group {w} producer enrich epoch 2 set first try"),
    # Sealed five hours ago, and nobody decided.
    "set_unresolved": (lambda w: earlier(_seal(w, 4, "4-0"), hours=5),
        "set-unresolved: group {w} producer enrich epoch 4 set 4-0"),
    "epoch_twice": (lambda w: w.say("decide", **_about(w, 3), outcome=COMMITTED, resolver="producer"),
        "epoch-twice: group {w} producer enrich epoch 3"),
    # An epoch below the last one was decided.
    "epoch_order": (lambda w: w.say("decide", **_about(w, 0), outcome=COMMITTED, resolver="producer"),
        "epoch-order: group {w} producer enrich epoch 0"),
}  # fmt: skip
TRAFFIC: dict[str, Row] = {
    # A message waited for two hours, and nothing went.
    "stalled": (_wait_for_hours, "stalled: {w}.orders since {at}"),
}  # fmt: skip
FAULTS_OF = {"ledger": {**LEDGER, **DEAD}, "transactions": HALVES, "traffic": TRAFFIC}
FAULTS = [name for faults in FAULTS_OF.values() for name in faults]

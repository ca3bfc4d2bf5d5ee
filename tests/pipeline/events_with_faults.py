"""The truthful day, and the same day with a fault: one world for each, all in one log.

A fault is a function that changes a world; it returns what the audits must say about it: (audit, kind, key).
What they say beyond that is invented.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from amqp_broker.pipeline.event_schema import COMMITTED, ROLLED_BACK
from tests.pipeline.truthful_day import Event, World, clock, decide, half, numbered, truthful_world

Expected = set[tuple[str, str, str]]
Fault = Callable[[World], Expected]
FAULTS: dict[str, Fault] = {}


def fault(plant: Fault) -> Fault:
    """Registers a fault by its name."""
    FAULTS[plant.__name__] = plant
    return plant


def all_worlds() -> tuple[list[World], dict[str, Expected]]:
    """A truthful world, and one for each fault; what is to be found in each."""
    ticks = clock()
    worlds, expected = [truthful_world("truth", ticks)], {"truth": set[tuple[str, str, str]]()}
    for name, plant in FAULTS.items():
        world = truthful_world(name, ticks)
        expected[name] = plant(world)
        worlds.append(world)
    return worlds, expected


def log_with_faults() -> tuple[list[Event], Expected]:
    """One log of all worlds, and everything that is to be found."""
    worlds, expected = all_worlds()
    return numbered(worlds), set().union(*expected.values())


def ledger(kind: str, world: World, place: str, offset: int) -> tuple[str, str, str]:
    """A finding about one message."""
    return "ledger", kind, f"{world.at(place)} offset {offset}"


def _drop(world: World, place: str, offset: int, *kinds: str) -> None:
    address = world.at(place)
    world.events[:] = [
        event
        for event in world.events
        if (event.get("address"), event.get("offset")) != (address, offset)
        or (kinds and event["type"] not in kinds)
    ]


def _missing(world: World, place: str, offset: int) -> tuple[str, str, str]:
    return "ledger", "offset-missing", f"{world.at(place)} offset {offset} to {offset}"


@fault
def number_given_twice(world: World) -> Expected:
    """Another message has the number of one."""
    world.events.append({**world.find(address=world.at("plain"), offset=4)[0], "message_id": "other"})
    return {ledger("number-twice", world, "plain", 4)}


@fault
def phantom(world: World) -> Expected:
    """Something is delivered that never came in."""
    world.consume("plain", 99)
    return {ledger("phantom", world, "plain", 99)}


@fault
def put_is_missing(world: World) -> Expected:
    """A message came out, and its put is not in the log."""
    _drop(world, "plain", 4, "put")
    return {ledger("phantom", world, "plain", 4), _missing(world, "plain", 4)}


@fault
def number_left_out(world: World) -> Expected:
    """Nothing is known of a message between two others."""
    _drop(world, "plain", 5)
    return {_missing(world, "plain", 5)}


@fault
def never_came_out(world: World) -> Expected:
    """A message came in, and nothing more."""
    _drop(world, "plain", 7, "deliver", "settle")
    return {ledger("lost", world, "plain", 7)}


@fault
def delivered_too_early(world: World) -> Expected:
    """Delivered before it was there."""
    put, deliver = world.index("put", "plain", 12), world.index("deliver", "plain", 12)
    world.events[put], world.events[deliver] = world.events[deliver], world.events[put]
    return {ledger("too-early", world, "plain", 12)}


@fault
def delivered_again(world: World) -> Expected:
    """Accepted, and delivered once more."""
    world.deliver("plain", 3, attempt=2)
    return {ledger("delivered-again", world, "plain", 3)}


@fault
def accepted_twice(world: World) -> Expected:
    """Two consumers accepted one message."""
    world.settle("plain", 3)
    return {ledger("settled-twice", world, "plain", 3)}


@fault
def accepted_and_rejected(world: World) -> Expected:
    """Two consumers disagree about one message."""
    world.settle("plain", 6, "rejected")
    return {ledger("settled-twice", world, "plain", 6)}


@fault
def taken_from_a_log(world: World) -> Expected:
    """Somebody was given a message that a log had archived."""
    world.deliver("log", 1)
    return {ledger("archived-and-taken", world, "log", 1)}


@fault
def accepted_out_of_a_log(world: World) -> Expected:
    """The delivery was not noted, and the outcome was."""
    world.settle("log", 3)
    return {ledger("archived-and-taken", world, "log", 3)}


@fault
def missing_in_a_log(world: World) -> Expected:
    """A log has no holes either."""
    _drop(world, "log", 1, "put")
    return {_missing(world, "log", 1)}


@fault
def out_of_order(world: World) -> Expected:
    """The second message of a pair came in before the first."""
    one, other = world.index("put", "plain", 4), world.index("put", "plain", 5)
    world.events[one], world.events[other] = world.events[other], world.events[one]
    return {ledger("order", world, "plain", 5)}


def _stream(kind: str, world: World, stream: str, seq_id: int, number: int) -> tuple[str, str, str]:
    return "ledger", kind, f"{world.at('stream')} stream {stream} id {seq_id} number {number}"


@fault
def sequence_duplicate(world: World) -> Expected:
    """A number of a stream was accepted again."""
    world.consume("stream", world.put("stream", seq_stream="till 2", seq_id=7, seq_no=4))
    return {_stream("sequence-duplicate", world, "till 2", 7, 4)}


@fault
def sequence_order(world: World) -> Expected:
    """Numbers 3 and 4 of a stream were accepted the wrong way round."""
    three, four = (world.find(type="put", seq_stream="till 1", seq_id=1, seq_no=n)[0] for n in (3, 4))
    three["seq_no"], four["seq_no"] = 4, 3
    return {
        _stream("sequence-gap", world, "till 1", 1, 4),
        _stream("sequence-order", world, "till 1", 1, 3),
        _stream("sequence-gap", world, "till 1", 1, 5),
    }


@fault
def old_sequence_comes_back(world: World) -> Expected:
    """A lower id was accepted after a higher one."""
    world.consume("stream", world.put("stream", seq_stream="till 1", seq_id=1, seq_no=7))
    return {_stream("sequence-order", world, "till 1", 1, 7)}


@fault
def sequence_gap(world: World) -> Expected:
    """A number of a stream was left out."""
    for event in world.find(type="put", seq_stream="till 2"):
        event["seq_no"] += event["seq_no"] > 2
    return {_stream("sequence-gap", world, "till 2", 7, 4)}


@fault
def sent_twice(world: World) -> Expected:
    """The same message-id of the same container under two numbers."""
    world.find(type="put", address=world.at("plain"), offset=9)[0]["message_id"] = "plain-2"
    return {("ledger", "duplicated", f"{world.at('plain')} message-id plain-2")}


def _dead(kind: str, world: World, offset: int) -> tuple[str, str, str]:
    return "dead letters", kind, f"{world.at('orders')} offset {offset}"


@fault
def dead_and_accepted(world: World) -> Expected:
    """Given up as undeliverable, and accepted."""
    world.settle("orders", 1)
    return {_dead("dead-and-accepted", world, 1)}


@fault
def dead_twice(world: World) -> Expected:
    """Given up twice."""
    world.events.append({**world.find(type="dead")[0]})
    return {_dead("dead-twice", world, 0)}


@fault
def expired_twice(world: World) -> Expected:
    """Expired twice."""
    world.events.append({**world.find(type="expire")[0]})
    return {_dead("dead-twice", world, 2)}


@fault
def delivered_after_death(world: World) -> Expected:
    """Given up, and delivered."""
    world.deliver("orders", 0, attempt=2)
    return {_dead("delivered-after-death", world, 0)}


@fault
def dead_unknown(world: World) -> Expected:
    """A message was given up that never came in."""
    world.say("dead", address=world.at("orders"), offset=77, reason="no such customer")
    return {_dead("dead-unknown", world, 77)}


@fault
def dead_without_reason(world: World) -> Expected:
    """A message was given up and nobody knows why."""
    world.find(type="dead")[1]["reason"] = ""
    return {_dead("dead-without-reason", world, 1)}


def _half(kind: str, world: World, half_id: str) -> tuple[str, str, str]:
    return "transactions", kind, f"group {world.name} half-id {half_id}"


@fault
def half_unresolved(world: World) -> Expected:
    """Nobody decided for five hours."""
    half(world, "forgotten")
    world.events[-1]["time"] -= timedelta(hours=5)
    return {_half("unresolved", world, "forgotten")}


@fault
def half_contradictory(world: World) -> Expected:
    """Committed, and then rolled back."""
    decide(world, "h1", ROLLED_BACK, "admin")
    return {_half("contradictory", world, "h1")}


@fault
def half_decided_twice(world: World) -> Expected:
    """Rolled back twice."""
    decide(world, "back", ROLLED_BACK)
    return {_half("decided-twice", world, "back")}


def _visible(world: World, half_id: str) -> None:
    world.consume("paid", world.put("paid", "publish", group=world.name, half_id=half_id, message_id=None))


@fault
def half_visible_undecided(world: World) -> Expected:
    """It became visible, and nobody had decided."""
    _visible(world, "open")
    return {_half("visible-undecided", world, "open")}


@fault
def half_visible_rolled_back(world: World) -> Expected:
    """It became visible, and was rolled back."""
    _visible(world, "back")
    return {_half("visible-rolled-back", world, "back")}


@fault
def half_visible_twice(world: World) -> Expected:
    """One commit, two messages."""
    _visible(world, "h2")
    return {_half("visible-twice", world, "h2")}


@fault
def half_not_visible(world: World) -> Expected:
    """Committed, and nothing came of it."""
    world.say("decide", group=world.name, half_id="open", outcome=COMMITTED, resolver="producer")
    return {_half("not-visible", world, "open")}


@fault
def half_decided_unknown(world: World) -> Expected:
    """A decision about something that was never put."""
    world.say("decide", group=world.name, half_id="nobody's", outcome=ROLLED_BACK, resolver="admin")
    return {_half("decided-unknown", world, "nobody's")}


@fault
def half_answer_without_check(world: World) -> Expected:
    """An answer that nobody asked for."""
    world.say("answer", group=world.name, half_id="h3", attempt=1, outcome="accepted")
    return {_half("answer-without-check", world, "h3")}


@fault
def half_asked_after_decision(world: World) -> Expected:
    """Decided, and asked about an hour later."""
    world.say("check", group=world.name, half_id="h3", attempt=1)
    world.find(type="decide", half_id="h3")[0]["time"] -= timedelta(hours=1)
    return {_half("asked-after-decision", world, "h3")}

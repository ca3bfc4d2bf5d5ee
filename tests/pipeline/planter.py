"""Plants single changes into a log, each of which the audits have to find, but for those of INVISIBLE.

    python -m tests.pipeline.planter --changes 100000

What is found by nothing but warnings is counted for itself. A change is a drop, a double, a swap, a move to
another place, another time, or another value of a column; the log is numbered anew afterwards, as by a broker
that told it so.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import attrs

from amqp_broker.pipeline.audit_result import FAULT
from amqp_broker.pipeline.audits.lives import FAULTS
from amqp_broker.pipeline.audits.log import CLOCK_US
from amqp_broker.pipeline.event_schema import EVENT_COLUMNS, EVENT_TYPES
from tests.pipeline.plain_audit import Told, found_in_order, told_of
from tests.pipeline.truthful_day import Event, clock, truthful_world

Log = Sequence[Event]
FOUND: Final = "found"
TOLD: Final = "told as a warning"
SHOWN_EVERY: Final = 5_000
BACK: Final = ("released", "modified")
KINDS: Final = ("drop", "double", "swap", "move", "time", "field")
_KIND_OF: Final = dict(EVENT_COLUMNS)


@attrs.frozen
class Change:
    """One change of a log: what was done to the event at `place`; `other` is the place of a swap or a move,
    `column` and `value` are those of a field.
    """

    kind: str
    place: int
    event: Event
    other: int = 0
    column: str = ""
    value: Any = None

    def __str__(self) -> str:
        told = {name: value for name, value in self.event.items() if name not in ("lsn", "time")}
        return f"{self.kind} {self.place} {self.other or ''}{self.column} {self.value}: {told}"


def planted(log: Log, chance: random.Random) -> tuple[Change, list[Event]]:
    """A change by chance, and the log with it."""
    place = chance.randrange(len(log))
    event = log[place]
    kind = chance.choice(KINDS)
    events = list(log)
    if kind == "drop":
        del events[place]
        return Change(kind, place, event), events
    if kind == "double":
        events.insert(place + 1, event)
        return Change(kind, place, event), events
    if kind == "time":
        by = timedelta(milliseconds=chance.choice((-1, 1)) * chance.choice((1, 100, 10_000, 3_600_000)))
        events[place] = {**event, "time": event["time"] + by}
        return Change(kind, place, event, value=by), events
    if kind == "field":
        column, value = _another(event, log, chance)
        events[place] = {**event, column: value}
        return Change(kind, place, event, column=column, value=value), events
    other = chance.choice((place + 1, chance.randrange(len(log))))
    other = other if other < len(log) and other != place else place - 1 if place else 1
    if kind == "swap":
        events[place], events[other] = (
            {**log[other], "time": event["time"]}, {**event, "time": log[other]["time"]},
        )  # fmt: skip
    else:
        del events[place]
        events.insert(other, {**event, "time": log[other]["time"]})
    return Change(kind, place, event, other), events


def _another(event: Event, log: Log, chance: random.Random) -> tuple[str, Any]:
    """A column with another value: nothing, another number, what another event has, or a new word."""
    column = chance.choice([name for name in _KIND_OF if name not in ("lsn", "time")])
    if column == "type":
        return column, chance.choice([each for each in EVENT_TYPES if each != event["type"]])
    before = event.get(column)
    values = {one for each in log if (one := each.get(column)) is not None}
    values |= {"another"} if _KIND_OF[column] == "string" else {(before or 0) + 1, (before or 0) + 1_000, 5}
    others = [*sorted(values - {before}), *([] if before is None else [None])]
    return column, chance.choice(others)


def judge(log: Log, change: Change, events: Iterable[Event], prepared: Mapping[int, Told]) -> str:
    """FOUND or TOLD, or the reason for which the change is invisible, or nothing: then it was missed.
    `prepared` is of the events of the logs, by their `id`.
    """
    severities = {FAULTS[each.kind].severity for each in found_in_order(events, prepared, drained=True)}
    if severities:
        return FOUND if FAULT in severities else TOLD
    if change.kind != "swap":
        return _why_invisible(change, log)
    # Two moves at once: each of them has its reason.
    one = Change("move", change.place, change.event, change.other)
    other = Change("move", change.other, log[change.other], change.place)
    return _why_invisible(one, log) and _why_invisible(other, log)


def _why_invisible(change: Change, log: Log) -> str:
    return next((reason for reason, holds in INVISIBLE.items() if holds(change, log)), "")


def _of(change: Change, *types: str, **fields: Any) -> bool:
    event = change.event
    return event["type"] in types and all(event.get(name) == value for name, value in fields.items())


def _others(log: Log, event: Event, *names: str) -> list[Event]:
    """The other events with the same values of these columns."""
    return [
        each for each in log if each is not event and all(each.get(name) == event.get(name) for name in names)
    ]


def _types(log: Log, event: Event, *names: str) -> set[str]:
    return {each["type"] for each in _others(log, event, *names)}


def _keeps_orders(change: Change, log: Log) -> bool:
    """A move after which each thing is told of in the same order, at other moments of the log."""
    first, last = sorted((change.place, change.other))
    crossed = log[first : last + 1]
    return change.kind == "move" and not any(
        _ordered(change.event, other) for other in crossed if other is not change.event
    )


def _ordered(one: Event, other: Event) -> bool:
    """Whether two events are about one thing, whose events have an order."""
    kinds = {one["type"], other["type"]}
    if one.get("half_id") is not None and _same(one, other, "group", "half_id"):
        return True
    if one.get("offset") is not None and _same(one, other, "address", "offset"):
        return "decide" not in kinds
    if kinds <= {"put", "publish"} and _same(one, other, "address"):
        return True
    of_sets = one.get("producer") is not None and _same(one, other, "group", "producer") and one.get("group")
    if not of_sets or kinds <= {"decide"}:
        return bool(of_sets)
    if "decide" in kinds:
        decided, other = (one, other) if one["type"] == "decide" else (other, one)
        return bool(decided["epoch"] >= other["epoch"])
    return one.get("set_id") == other.get("set_id")


def _same(one: Event, other: Event, *names: str) -> bool:
    return all(one.get(name) == other.get(name) for name in names)


def _delivery(change: Change, log: Log) -> bool:
    return _of(change, "deliver") and change.kind in ("drop", "double", "move")


def _elsewhere(change: Change, log: Log) -> bool:
    return _of(change, "deliver") and change.column in ("address", "offset")


def _given_back(change: Change, log: Log) -> bool:
    back = _of(change, "settle", outcome="released") or _of(change, "settle", outcome="modified")
    return back and (change.kind in ("drop", "double", "move") or change.column in ("address", "offset"))


def _as_good(change: Change, log: Log) -> bool:
    return change.column == "outcome" and change.value in BACK and change.event["outcome"] in BACK


def _cut(change: Change, log: Log) -> bool:
    last = change.event["time"] >= log[-1]["time"]
    return last and (change.column in ("outcome", "type") or change.kind in ("drop", "move"))


def _only_dead(change: Change, log: Log) -> bool:
    other = change.kind == "drop" or (change.column == "outcome" and change.value in BACK)
    return _of(change, "settle", outcome="rejected") and bool(change.event.get("reason")) and other


def _free(change: Change, log: Log) -> bool:
    return change.column in FREE.get(change.event["type"], ())


def _asked(change: Change, log: Log) -> bool:
    return _of(change, "check", "answer") and change.kind != "field"


def _resumed(change: Change, log: Log) -> bool:
    return _of(change, "resume") and change.kind == "drop"


def _nothing_in_it(change: Change, log: Log) -> bool:
    about = _types(log, change.event, "group", "producer", "epoch")
    lost = [each for each in log if each["type"] == "void" and each.get("resolver") is None]
    return (
        _of(change, "decide", half_id=None) and change.kind != "double" and "publish" not in about
        and not any(each["epoch"] == change.event.get("epoch") for each in lost)
    )  # fmt: skip


def _first_attempt(change: Change, log: Log) -> bool:
    return change.column == "attempt" and _of(change, "deliver", "check", "answer")


def _little(change: Change, log: Log) -> bool:
    by = change.value
    return change.kind == "time" and (
        abs(by) <= timedelta(microseconds=CLOCK_US)
        or (by > timedelta(0) and change.place == len(log) - 1)
        or (by < timedelta(0) and change.place == 0)
    )


def _never_visible(change: Change, log: Log) -> bool:
    event = change.event
    if event["type"] not in ("seal", "void") or event.get("count") == 0:
        return event["type"] in ("seal", "void")
    return "publish" not in _types(log, event, "group", "producer", "set_id")


def _undecided(change: Change, log: Log) -> bool:
    event = change.event
    about = _others(log, event, "group", "half_id")
    committed = any(each.get("outcome") == "committed" for each in (*about, event))
    return event.get("half_id") is not None and not committed


def _first_of_queue(change: Change, log: Log) -> bool:
    mine = [each for each in log if each["type"] in ("put", "publish")]
    of_queue = [each["offset"] for each in mine if _same(each, change.event, "address")]
    last = change.event.get("offset") in (min(of_queue, default=0), max(of_queue, default=0))
    gone = change.kind == "drop" or change.column in ("address", "offset")
    return _of(change, "put", outcome="archived") and gone and last


def _alone(change: Change, log: Log) -> bool:
    return change.column == "txn_id"


FREE: Final = {
    "put": ("message_id", "bytes", "seq_stream", "seq_id", "seq_prev", "reason"),
    "publish": ("message_id", "bytes", "seq_stream", "seq_id", "seq_prev", "outcome"),
    "half": ("bytes",), "deliver": ("container",),
    "settle": ("reason",), "void": ("reason", "resolver"), "dead": ("reason",),
    "park": ("reason", "resolver"), "resume": ("reason", "resolver"), "decide": ("reason", "resolver"),
    "reject": ("address", "reason", "seq_stream", "seq_id", "seq_no", "txn_id"),
}  # fmt: skip
"""Columns that say what nothing else says."""
INVISIBLE: Final[dict[str, Callable[[Change, Log], bool]]] = {
    "each thing is told of in its order: things have none among each other": _keeps_orders,
    "a delivery may be missing after a crash, and comes again without a word": _delivery,
    "a delivery of another message instead: one is missing, one comes again": _elsewhere,
    "what is given back by a crash is given back without a word": _given_back,
    "released and modified both give it back": _as_good,
    "what is dead for a reason of its consumer may have failed before, and need not be rejected": _only_dead,
    "nothing else says it": _free,
    "the sender says how often it was tried before; checks without an answer count, too": _first_attempt,
    "no clock is so exact, and the first event may be early, the last one late": _little,
    "a set that was never visible may be given up before it is sealed, and opened again": _never_visible,
    "nothing was in the sets of this epoch": _nothing_in_it,
    "checks may stay without an answer, or be missing after a crash, and come again": _asked,
    "what is parked may be decided, too": _resumed,
    "what is not committed may still be decided after the end of the log": _undecided,
    "the first or the last message of a log: nobody takes it": _first_of_queue,
    "a message that was refused is told of by nothing else": lambda change, log: _of(change, "reject"),
    "the last commit may be told in part: the log goes on": _cut,
    "how many parts a transaction has is not told": _alone,
}
"""Which changes nobody can find in the log alone, and why."""


def plant(
    logs: Sequence[Log], changes: int, chance: random.Random, show: Callable[[str], None] | None = None
) -> tuple[Counter[str], list[str]]:
    """So many changes, each of one of the logs: how many came to what, and those that were missed. `show`
    is told now and then how far it is, and at once what was missed.
    """
    prepared = {id(event): told_of({"lsn": 0, **event}) for log in logs for event in log}
    counted: Counter[str] = Counter()
    missed: list[str] = []
    for number in range(changes):
        if show and number and number % SHOWN_EVERY == 0:
            show(f"{number:,} of {changes:,} planted, {len(missed)} missed")
        log = chance.choice(logs)
        change, events = planted(log, chance)
        came_to = judge(log, change, events, prepared)
        counted[came_to] += 1
        if not came_to:
            missed.append(str(change))
            if show:
                show(f"missed: {change}")
    return counted, missed


def _show(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Plant many, and say what came of it."""
    from tests.pipeline.real_logs import random_log

    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--changes", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    logs = [random_log(seed) for seed in range(10)] + [truthful_world("day", clock()).events]
    counted, missed = plant(logs, chosen.changes, random.Random(chosen.seed), _show)
    for reason, count in counted.most_common():
        print(f"{count:8,} {reason or 'missed'}")
    print(*missed[:20], sep="\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

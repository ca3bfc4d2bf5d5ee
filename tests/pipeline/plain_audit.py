"""The audits of a log without Spark: what carrying.py does there, with lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import attrs

from amqp_broker.pipeline.audits.judging import JUDGES, Beside, Found, Judge, Sight, judged
from amqp_broker.pipeline.audits.log import Run, breaks, malformed
from amqp_broker.pipeline.event_schema import AVAILABLE, EVENT_COLUMNS
from tests.pipeline.truthful_day import Event

NAMES = [name for name, _ in EVENT_COLUMNS]


@attrs.frozen
class Told:
    """An event as judges are told it, and what does not depend on its place in the log: of whose things it
    is, by their keys, and whether it has the shape of its type.
    """

    row: dict[str, Any]
    keys: tuple[tuple[type[Judge], tuple[Any, ...]], ...]
    wrong: Found | None


def plain_event(event: Event) -> dict[str, Any]:
    """With all columns, and the time in microseconds."""
    row = {name: event.get(name) for name in NAMES}
    row["at_us"] = round(event["time"].timestamp() * 1e6)
    return row


def told_of(event: Event) -> Told:
    """What is known of one event alone."""
    row = plain_event(event)
    keys = ((judge, tuple([row[name] for name in judge.KEY])) for judge in JUDGES if judge.takes(row))
    return Told(row, tuple(keys), malformed({name: row[name] for name in NAMES}))


def plain(events: Iterable[Event]) -> list[dict[str, Any]]:
    """All of them so."""
    return [plain_event(event) for event in events]


def sight_of(events: Sequence[Event], **known: Any) -> Sight:
    """What an audit of plain events sees of the whole log."""
    first: dict[str, int] = {}
    delivered: dict[str, int] = {}
    for event in events:
        address, offset = event["address"], event["offset"]
        if address is None or offset is None:
            continue
        if event["type"] in AVAILABLE:
            first[address] = min(first.get(address, offset), offset)
        elif event["type"] == "deliver":
            delivered[address] = max(delivered.get(address, offset), offset)
    beside = {address: Beside(offset, delivered.get(address, -1)) for address, offset in first.items()}
    lsns = [event["lsn"] for event in events]
    complete = min(lsns, default=1) <= 1
    end_us = max((event["at_us"] for event in events), default=0)
    return Sight(end_us, complete, **{"addresses": beside, **known})


def found_in(events: Iterable[Event], **known: Any) -> list[Found]:
    """All findings of all judges, and of the log itself. `known`: fields of Sight."""
    told = sorted(map(told_of, events), key=lambda each: int(each.row["lsn"]))
    return _found([(each.row, each) for each in told], **known)


def found_in_order(
    events: Iterable[Event], prepared: Mapping[int, Told] | None = None, **known: Any
) -> list[Found]:
    """The same of events that are numbered by their order. `prepared` is what was said before of events that
    are still there, by their `id`.
    """
    before = prepared or {}
    told = [before.get(id(event)) or told_of({"lsn": 0, **event}) for event in events]
    return _found([({**each.row, "lsn": lsn}, each) for lsn, each in enumerate(told, 1)], **known)


def _found(told: Sequence[tuple[dict[str, Any], Told]], **known: Any) -> list[Found]:
    sight = sight_of([row for row, _ in told], **known)
    things: dict[type[Judge], dict[Any, list[dict[str, Any]]]] = {judge: {} for judge in JUDGES}
    for row, each in told:
        for judge, key in each.keys:
            things[judge].setdefault(key, []).append(row)
    of_things = (judged(judge, chain.from_iterable(mine.values()), sight) for judge, mine in things.items())
    runs = (Run(row["lsn"], row["lsn"], row["at_us"], row["at_us"]) for row, _ in told)
    wrong = (each.wrong for _, each in told)
    return [*chain.from_iterable(of_things), *breaks(runs), *filter(None, wrong)]


def in_turn(judge: type[Judge], rows: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """The events of one kind of thing, those of one thing in a row."""
    things: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        if judge.takes(row):
            things.setdefault(tuple([row[name] for name in judge.KEY]), []).append(row)
    return chain.from_iterable(things.values())

"""The audits of a log without Spark: what carrying.py does there, with lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from amqp_broker.pipeline.audits.judging import JUDGES, Beside, Found, Judge, Sight, judged
from amqp_broker.pipeline.audits.log import Run, breaks, malformed
from amqp_broker.pipeline.event_schema import AVAILABLE, EVENT_COLUMNS
from tests.pipeline.truthful_day import Event, numbered_events

NAMES = [name for name, _ in EVENT_COLUMNS]


def plain(events: Iterable[Event]) -> list[dict[str, Any]]:
    """With all columns, and the time in microseconds, as a judge is told them."""
    return [
        {name: event.get(name) for name in NAMES} | {"at_us": round(event["time"].timestamp() * 1e6)}
        for event in events
    ]


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
    rows = sorted(plain(events), key=lambda event: int(event["lsn"]))
    sight = sight_of(rows, **known)
    of_things = (judged(judge, in_turn(judge, rows), sight) for judge in JUDGES)
    runs = (Run(row["lsn"], row["lsn"], row["at_us"], row["at_us"]) for row in rows)
    wrong = (malformed({name: row[name] for name in NAMES}) for row in rows)
    return [*chain.from_iterable(of_things), *breaks(runs), *filter(None, wrong)]


def in_turn(judge: type[Judge], rows: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    things: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        if judge.takes(row):
            things.setdefault(tuple([row[name] for name in judge.KEY]), []).append(row)
    return chain.from_iterable(things.values())


def found_in_order(events: Iterable[Event], **known: Any) -> list[Found]:
    """The same of events that are numbered by their order."""
    return found_in(numbered_events(events), **known)

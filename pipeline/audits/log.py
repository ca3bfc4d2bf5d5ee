"""Is the log itself whole? Its numbers are dense, its clock does not go back, its events have the fields of
their types. Pure functions; carrying.py brings them the events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from amqp_broker.pipeline.audits.judging import Found
from amqp_broker.pipeline.audits.lives import FAULTS, FIELDS, LEAST, RESOLVERS, SAME, SENT, TOGETHER
from amqp_broker.pipeline.event_schema import EVENT_COLUMNS

CLOCK_US: Final = 60 * 1_000_000
"""By so much an event may be earlier than the one before: one that nobody waits for is stored a little later,
and a crash takes back a moment of the broker's time.
"""
_ALWAYS: Final = ("lsn", "time", "type")


class Run(NamedTuple):
    """Events `first` to `last` without a hole; the times of these two in microseconds."""

    first: int
    last: int
    begin_us: int
    end_us: int


def joined(runs: Iterable[Run]) -> Iterator[Run]:
    """Runs (events alone are such) in the order of the log, with all joined that follow each other."""
    one: Run | None = None
    for run in runs:
        if one is None:
            one = run
        elif run.first == one.last + 1 and run.begin_us >= one.end_us - CLOCK_US:
            one = Run(one.first, run.last, one.begin_us, run.end_us)
        else:
            yield one
            one = run
    if one is not None:
        yield one


def breaks(runs: Iterable[Run]) -> Iterator[Found]:
    """What is wrong between runs that do not follow each other."""
    before: Run | None = None
    for run in joined(runs):
        if before is not None:
            around = f"between lsn {before.last} and lsn {run.first}"
            if run.first <= before.last:
                yield _found("events-double", f"lsn {run.first}", f"lsn {run.first}")
            elif run.first > before.last + 1:
                yield _found("events-missing", f"lsn {before.last + 1} to {run.first - 1}", around)
            if run.begin_us < before.end_us - CLOCK_US:
                yield _found("time-backwards", f"lsn {run.first}", around)
        before = run


def _found(kind: str, key: str, example: str) -> Found:
    return Found(kind, key, FAULTS[kind].says, example)


def malformed(event: Mapping[str, Any]) -> Found | None:
    """Whether an event has no shape of its type."""
    kind = event["type"]
    has = {name: value for name, value in event.items() if value is not None and name not in _ALWAYS}
    shapes = FIELDS.get(kind, ())
    if _agrees(kind, has) and any(_is(has, _columns(needs), _columns(may)) for needs, may in shapes):
        return None
    says = FAULTS["event-malformed"].says.format(type=kind)
    return Found("event-malformed", f"lsn {event['lsn']}", says, f"lsn {event['lsn']}")


@cache
def _columns(shape: str) -> Mapping[str, str]:
    """Its columns, each with the word that it must have, if one."""
    return {name: word for name, _, word in (column.partition("=") for column in shape.split())}


def _is(has: Mapping[str, Any], needs: Mapping[str, str], may: Mapping[str, str]) -> bool:
    known = {**needs, **may}
    return (
        needs.keys() <= has.keys() <= known.keys()
        and all(has[name] == word for name, word in known.items() if word and name in has)
    )  # fmt: skip


def _agrees(kind: str, has: Mapping[str, Any]) -> bool:
    one, other = (has.get(name) for name in SAME)
    return (
        has.get("resolver", RESOLVERS[0]) in RESOLVERS
        and all(has[name] >= least for name, least in LEAST.items() if name in has)
        and all(other in has for name, other in TOGETHER.items() if name in has)
        and (kind not in SENT or one == other or (other is None and "set_id" in has))
    )


def malformed_sql() -> str:
    """The same as SQL: true for events that are."""
    agree = [f"coalesce(resolver IN {RESOLVERS}, true)", _sent_sql()]
    agree += [f"coalesce(`{name}` >= {least}, true)" for name, least in LEAST.items()]
    agree += [f"(`{name}` IS NULL OR `{other}` IS NOT NULL)" for name, other in TOGETHER.items()]
    whens = [
        f"WHEN '{kind}' THEN {' OR '.join(_is_sql(_columns(needs), _columns(may)) for needs, may in shapes)}"
        for kind, shapes in FIELDS.items()
    ]
    return f"NOT ({' AND '.join(agree)} AND CASE type {' '.join(whens)} ELSE false END)"


def _sent_sql() -> str:
    one, other = SAME
    return f"(type NOT IN {SENT} OR {one} <=> {other} OR ({other} IS NULL AND set_id IS NOT NULL))"


def _is_sql(needs: Mapping[str, str], may: Mapping[str, str]) -> str:
    known = {**needs, **may}
    names = [name for name, _ in EVENT_COLUMNS if name not in _ALWAYS]
    well = [f"`{name}` IS NOT NULL" for name in needs]
    well += [f"`{name}` IS NULL" for name in names if name not in known]
    well += [f"coalesce(`{name}` = '{word}', true)" for name, word in known.items() if word]
    return f"({' AND '.join(well)})"

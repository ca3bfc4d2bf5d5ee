"""What an audit finds: rows of one shape, made by rules over a frame in one pass.

A *fault* is something that must not be, whatever the clients did: the report says FAIL. A *warning* is
something that a client or an operator may have wanted, and that somebody should look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

FAULT: Final = "fault"
WARNING: Final = "warning"
FINDING_COLUMNS: Final = ("audit", "kind", "severity", "key", "detail", "example")
FINDING_DDL: Final = ", ".join(f"{name} string" for name in FINDING_COLUMNS)


@dataclass(frozen=True)
class Rule:
    """One kind of finding: where `when` is true of a row, the row is an example of it.

    `key` says what it is about (an address and an offset, a half-id), `detail` what is wrong in words,
    `example` where to look in the log or the history.
    """

    kind: str
    when: Column
    key: Column
    detail: Column
    example: Column
    severity: str = FAULT


def judge(frame: DataFrame, audit: str, rules: Sequence[Rule]) -> DataFrame:
    """The findings of all rules over the rows of `frame`, in one pass."""
    found = [
        F.when(
            rule.when,
            F.struct(
                F.lit(audit).alias("audit"),
                F.lit(rule.kind).alias("kind"),
                F.lit(rule.severity).alias("severity"),
                rule.key.cast("string").alias("key"),
                rule.detail.cast("string").alias("detail"),
                rule.example.cast("string").alias("example"),
            ),
        )
        for rule in rules
    ]
    any_of_them = reduce(or_, (F.coalesce(rule.when, F.lit(False)) for rule in rules))
    return (
        frame.where(any_of_them)
        .select(F.explode(F.array_compact(F.array(*found))).alias("found"))
        .select("found.*")
    )


def text(template: str, **columns: Column | str) -> Column:
    """Text with columns in it: `text("put {n} times", n="puts")`; a null is shown as `-`."""
    parts: list[Any] = []
    rest = template
    while "{" in rest:
        before, _, tail = rest.partition("{")
        name, _, rest = tail.partition("}")
        if before:
            parts.append(F.lit(before))
        column = columns[name]
        shown = F.col(column) if isinstance(column, str) else column
        parts.append(F.coalesce(shown.cast("string"), F.lit("-")))
    if rest:
        parts.append(F.lit(rest))
    return F.concat(*parts)

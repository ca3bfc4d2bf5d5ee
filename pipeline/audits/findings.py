"""What an audit finds: rows of one shape, made by rules over a frame in one pass.

A *fault* is something that must not be, whatever the clients did: the report says FAIL. A *warning* is
something that a client or an operator may have wanted, and that somebody should look at.

    Rule("number-twice", "puts > 1", "{puts} messages have one number")

Conditions are SQL over the columns of the frame, and so is what stands between braces in a sentence.
"""

from __future__ import annotations

import re
from functools import reduce
from typing import Final

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

FAULT: Final = "fault"
WARNING: Final = "warning"


@attrs.frozen
class Rule:
    """One kind of finding: where `when` is true of a row, the row is an example of it. `detail` says what is
    wrong in words, `example` where to look if that is not where all rules of the frame say.
    """

    kind: str
    when: str
    detail: str
    severity: str = FAULT
    example: str = ""


def judge(frame: DataFrame, audit: str, key: str, example: str, *rules: Rule) -> DataFrame:
    """The findings of all rules over the rows of `frame`, in one pass. `key` says what a row is about (an
    address and an offset, a half-id), `example` where to look in the log or the history.
    """
    found = [
        F.when(
            F.expr(rule.when),
            F.struct(
                F.lit(audit).alias("audit"),
                F.lit(rule.kind).alias("kind"),
                F.lit(rule.severity).alias("severity"),
                text(key).alias("key"),
                text(rule.detail).alias("detail"),
                text(rule.example or example).alias("example"),
            ),
        )
        for rule in rules
    ]
    return (
        frame.where(" OR ".join(f"coalesce({rule.when}, false)" for rule in rules))
        .select(F.explode(F.array_compact(F.array(*found))).alias("found"))
        .select("found.*")
    )


def together(*findings: DataFrame) -> DataFrame:
    """All of them."""
    return reduce(DataFrame.unionByName, findings)


def text(sentence: str) -> Column:
    """A sentence with the values of a row in it: `text("put {puts} times")`; a null is shown as `-`."""
    parts = re.split(r"\{(.*?)\}", sentence)
    return F.concat(*(
        F.coalesce(F.expr(part).cast("string"), F.lit("-")) if at % 2 else F.lit(part)
        for at, part in enumerate(parts)
    ))  # fmt: skip

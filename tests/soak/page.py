"""The page of a soak: its verdict, and each figure over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from amqp_broker.pipeline.report_style import STYLE
from amqp_broker.plots import Plot, lines
from tests.soak.verdict import MIB, Finding

_PLOTS: Final = (
    ("Memory of the process, and the store", "MiB", ("memory", "store"), MIB),
    ("Files, threads, and links", "", ("descriptors", "threads", "links"), 1),
    ("What lives", "", ("queues", "transactions", "subscriptions", "halves"), 1),
    ("Messages in all queues", "messages", ("messages",), 1),
    ("A small message and back", "ms", ("latency p50", "latency p99"), 1),
)


def page(
    told: str, times: Sequence[float], figures: Mapping[str, Sequence[float | None]],
    findings: Sequence[Finding], complaints: Sequence[str],
) -> str:
    """As HTML with the plots in it; `told` says what ran."""
    shown = [
        lines(Plot(title, unit), times, {name: _scaled(figures[name], scale) for name in names})
        for title, unit, names, scale in _PLOTS
    ]
    bad = bool(complaints) or not all(finding.flat for finding in findings)
    verdict = [str(finding) for finding in findings] + [*complaints]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Soak</title><style>{STYLE}</style>'
        f'<main><header class="{"fail" if bad else ""}"><h1>{"FAIL" if bad else "FLAT"}</h1>'
        f"<div><h2>Soak</h2><p>{escape(told)}</p></div></header>"
        f'<div class="plots">{"".join(shown)}</div><pre>{escape(chr(10).join(verdict))}</pre></main></html>\n'
    )


def _scaled(values: Sequence[float | None], scale: float) -> list[float | None]:
    return [None if value is None else value / scale for value in values]

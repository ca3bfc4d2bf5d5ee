"""The report: one HTML file that needs nothing beside it. PASS or FAIL first, then why, then the plots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from amqp_broker.pipeline.audit_result import FAULT, AuditResult, Kind
from amqp_broker.pipeline.plots import SERIES, Plot, bars, lines, short
from amqp_broker.pipeline.report_style import STYLE

POINTS: Final = 240
"""A longer time is drawn in coarser steps."""


def page(result: AuditResult, title: str = "Audit of the journal") -> str:
    """The whole page."""
    body = [
        _verdict(result, title),
        _findings(result),
        _traffic(result),
        _transactions(result),
        _deaths(result),
        _audits(result),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{result.verdict}: {escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _verdict(result: AuditResult, title: str) -> str:
    log, kind = result.log, result.verdict.lower()
    facts = {
        "events": short(log["events"]),
        "messages": short(result.messages),
        "faults": short(result.faults),
        "warnings": short(result.warnings),
    }
    tiles = "".join(f"<div><b>{value}</b>{name}</div>" for name, value in facts.items())
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in result.notes)
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return (
        f'<header class="{kind}"><h1>{result.verdict}</h1><div><h2>{escape(title)}</h2>'
        f"<p>lsn {log['first_lsn']} to {log['last_lsn']}, {log['begin']} to {log['end']}</p>"
        f'<p class="small">{escape(result.archive)}, audited {made}</p></div></header>'
        f'<section class="tiles">{tiles}</section>{notes}'
    )


def _findings(result: AuditResult) -> str:
    if not result.kinds:
        checked = ", ".join(result.audits)
        return f"<section><h3>Findings</h3><p>None. What was looked at: {escape(checked)}.</p></section>"
    return f"<section><h3>Findings</h3>{''.join(_kind(kind) for kind in result.kinds)}</section>"


def _kind(kind: Kind) -> str:
    rows = [(each.key, each.detail, each.example) for each in kind.findings]
    more = kind.count - len(kind.findings)
    rest = f"<p class='small'>and {more:,} more</p>" if more > 0 else ""
    is_open = " open" if kind.severity == FAULT else ""
    return (
        f'<details class="{kind.severity}"{is_open}><summary><em>{kind.severity}</em> '
        f"{escape(kind.audit)}: <b>{escape(kind.kind)}</b> {kind.count:,}</summary>"
        f"{_table(('what', 'why', 'where'), rows)}{rest}</details>"
    )


def _traffic(result: AuditResult) -> str:
    by_address: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in result.steps:
        by_address[row["address"]].append(row)
    if not by_address:
        return ""
    busiest = sorted(by_address, key=lambda one: -sum(row["came"] for row in by_address[one]))
    first = min(row["step"] for row in result.steps)
    last = max(row["step"] for row in result.steps)
    step = max(1, -(-(last - first + 1) // POINTS))
    step_s = int(result.log["step_s"])
    grids = {name: _Grid(by_address[name], range(first, last + 1, step), step_s) for name in busiest}
    times = next(iter(grids.values())).times
    shown = busiest[:SERIES]
    per = _per(step * step_s)
    plots = [
        lines(Plot("Messages in", per), times, {name: grids[name].sums("came") for name in shown}),
        lines(Plot("Messages out", per), times, {name: grids[name].sums("went") for name in shown}),
        lines(Plot("Waiting", "messages"), times, {name: grids[name].level("backlog") for name in shown}),
        lines(Plot("From put to end, 95 of 100 within", "ms", log=True), times,
              {name: grids[name].most("p95_ms") for name in shown}),
        lines(Plot("Octets in", per), times, {name: grids[name].sums("bytes") for name in shown}),
    ]  # fmt: skip
    hidden = len(busiest) - len(shown)
    also = f"<p class='small'>{hidden} more addresses are in the table only</p>" if hidden > 0 else ""
    return (
        f"<section><h3>Traffic</h3>{also}<div class='plots'>{''.join(plots)}</div>"
        f"{_address_table(by_address, busiest)}</section>"
    )


def _per(seconds: int) -> str:
    """The unit of what is counted in a step."""
    if seconds == 1:
        return "a second"
    if seconds < 60:
        return f"in {seconds} seconds"
    return "a minute" if seconds == 60 else f"in {seconds // 60} minutes"


class _Grid:
    """The steps of one address on those of the plots, which may be longer."""

    def __init__(self, rows: Sequence[dict[str, Any]], steps: range, step_s: int) -> None:
        self.times = [float(at * step_s) for at in steps]
        self._cells: list[list[dict[str, Any]]] = [[] for _ in self.times]
        for row in rows:
            self._cells[(row["step"] - steps.start) // steps.step].append(row)

    def sums(self, name: str) -> list[float]:
        """The total of each step."""
        return [sum(row[name] or 0 for row in cell) for cell in self._cells]

    def most(self, name: str) -> list[float | None]:
        """The highest of each step."""
        found = [[row[name] for row in cell if row[name] is not None] for cell in self._cells]
        return [max(values) if values else None for values in found]

    def level(self, name: str) -> list[float]:
        """The last of each step; where nothing happened it stays."""
        levels, now = [], 0.0
        for cell in self._cells:
            now = cell[-1][name] if cell else now
            levels.append(now)
        return levels


def _address_table(by_address: dict[str, list[dict[str, Any]]], names: Sequence[str]) -> str:
    rows = []
    for name in names:
        mine = by_address[name]
        slow = [row["p99_ms"] for row in mine if row["p99_ms"] is not None]
        sums = [sum(row[column] for row in mine) for column in ("came", "bytes", "went", "redelivered")]
        rows.append((name, *sums, mine[-1]["backlog"], max(slow, default=0.0)))
    heads = ("address", "in", "octets in", "out", "delivered again", "waiting at the end", "worst p99 ms")
    return _table(heads, rows)


def _transactions(result: AuditResult) -> str:
    if not result.resolvers:
        return ""
    numbers = ("n", "checks", "p50_ms", "p95_ms", "p99_ms")
    rows = [
        (row["resolver"], row["outcome"], *(row[name] or 0 for name in numbers)) for row in result.resolvers
    ]
    slow = {f"{row['resolver']}, {row['outcome']}": float(row["p95_ms"] or 0) for row in result.resolvers}
    heads = ("decided by", "outcome", "half messages", "checks", "p50 ms", "p95 ms", "p99 ms")
    plot = bars(Plot("From put to decision, 95 of 100 within", "ms"), slow)
    return f"<section><h3>Half messages</h3><div class='plots'>{plot}</div>{_table(heads, rows)}</section>"


def _deaths(result: AuditResult) -> str:
    if not result.deaths:
        return ""
    many = {f"{row['address']}: {row['reason']}": float(row["n"]) for row in result.deaths[:12]}
    rows = [
        (row["address"], row["reason"], row["n"], str(row["first"]), str(row["last"]))
        for row in result.deaths[:100]
    ]
    table = _table(("address", "reason", "messages", "first", "last"), rows)
    plot = bars(Plot("Given up", "messages"), many)
    return f"<section><h3>Dead letters</h3><div class='plots'>{plot}</div>{table}</section>"


def _audits(result: AuditResult) -> str:
    count: dict[str, int] = defaultdict(int)
    for kind in result.kinds:
        count[kind.audit] += kind.count
    rows = [(name, _Shown(f"{count[name]:,}"), _Shown(f"{took:.1f}")) for name, took in result.audits.items()]
    return f"<section><h3>Audits</h3>{_table(('audit', 'findings', 'seconds'), rows)}</section>"


class _Shown(str):
    """A number as it is to be shown."""


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Texts and numbers, row by row."""
    lines = [f"<tr>{''.join(f'<th>{name}</th>' for name in heads)}</tr>"]
    lines += [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows]
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def _cell(value: Any) -> str:
    if isinstance(value, str) and not isinstance(value, _Shown):
        return f"<td>{escape(value)}</td>"
    return f'<td class="n">{value if isinstance(value, _Shown) else short(value)}</td>'

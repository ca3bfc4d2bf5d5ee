"""The report: one HTML file that needs nothing beside it. PASS or FAIL first, then totals, what is wrong, the
plots.

Names come from outside: they are escaped, and stand in a <bdi> each, so that one that is read from right to
left turns nothing around it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from amqp_broker.pipeline.audit_result import FAULT, AuditResult, Kind
from amqp_broker.pipeline.report_style import SCRIPT, STYLE
from amqp_broker.plots import SERIES, Plot, bars, lines, short, sketch

POINTS: Final = 240
"""A longer time is drawn in coarser steps."""
DRAWN: Final = 60
"""Addresses that have a drawing of their own: those that stand still, then the busiest."""
STILL: Final = 4
"""An address stands still if messages wait at the end, and none went in the last of so many parts of it."""
ROWS: Final = 1_000
"""Of a table."""

Rows = list[dict[str, Any]]


def page(result: AuditResult, title: str = "Audit of the journal") -> str:
    """The whole page."""
    traffic = _Traffic(result)
    body = [
        _verdict(result, title),
        _totals(result, traffic),
        _findings(result),
        traffic.plots(),
        traffic.sketches(),
        traffic.addresses(),
        _clients(result),
        _transactions(result),
        _deaths(result),
        _audits(result),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{result.verdict}: {escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main><script>{SCRIPT}</script></body></html>\n"
    )


def _verdict(result: AuditResult, title: str) -> str:
    log = result.log
    made = datetime.now(UTC).isoformat(timespec="seconds")
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in result.notes)
    return (
        f'<header class="{result.verdict.lower()}"><h1>{result.verdict}</h1><div><h2>{escape(title)}</h2>'
        f"<p>lsn {log['first_lsn']} to {log['last_lsn']}, {log['begin']} to {log['end']}</p>"
        f'<p class="small">{name(result.archive)}, audited {made}</p></div></header>{notes}'
    )


def _totals(result: AuditResult, traffic: _Traffic) -> str:
    """How much there was, and how fast."""
    facts = [
        ("faults", short(result.faults), "bad" if result.faults else ""),
        ("warnings", short(result.warnings), "warn" if result.warnings else ""),
        ("messages", short(result.messages), ""),
        ("events", short(result.log["events"]), ""),
    ]
    if traffic.rows:
        facts += [
            ("in, a second", short(traffic.total("came") / traffic.seconds), ""),
            ("out, a second", short(traffic.total("went") / traffic.seconds), ""),
            ("octets in", _octets(traffic.total("bytes")), ""),
            ("wait at the end", short(sum(rows[-1]["backlog"] for rows in traffic.rows.values())), ""),
        ]
    tiles = "".join(f'<div class="{kind}"><b>{value}</b>{label}</div>' for label, value, kind in facts)
    return f'<section class="tiles">{tiles}</section>'


def _octets(number: float) -> str:
    """A size as people read it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{short(round(number, 1))} {unit}"
        number /= 1024
    return f"{short(round(number, 1))} TiB"


def _findings(result: AuditResult) -> str:
    if not result.kinds:
        checked = ", ".join(result.audits)
        return f"<section><h3>Findings</h3><p>None. What was looked at: {escape(checked)}.</p></section>"
    kinds = sorted(result.kinds, key=lambda kind: (kind.severity != FAULT, -kind.count))
    return f"<section><h3>Findings</h3>{''.join(map(_kind, kinds))}</section>"


def _kind(kind: Kind) -> str:
    rows = [(each.key, each.detail, each.example) for each in kind.findings]
    more = kind.count - len(kind.findings)
    rest = f"<p class='small'>and {more:,} more</p>" if more > 0 else ""
    is_open = " open" if kind.severity == FAULT else ""
    first = kind.findings[0] if kind.findings else None
    such = f'<span class="such">such as {name(first.key)}: {escape(first.detail)}</span>' if first else ""
    return (
        f'<details class="{kind.severity}"{is_open}><summary><em>{kind.severity}</em> '
        f"{escape(kind.audit)}: <b>{escape(kind.kind)}</b> {kind.count:,}{such}</summary>"
        f"{table(('what', 'why', 'where'), rows)}{rest}</details>"
    )


class _Traffic:
    """What came and went at each address."""

    def __init__(self, result: AuditResult) -> None:
        self.rows: dict[str, Rows] = defaultdict(list)
        for row in result.steps:
            self.rows[row["address"]].append(row)
        self._step_s = int(result.log["step_s"])
        self._first = min((row["step"] for row in result.steps), default=0)
        self._last = max((row["step"] for row in result.steps), default=0)
        self._step = max(1, -(-(self._last - self._first + 1) // POINTS))
        steps = range(self._first, self._last + 1, self._step)
        self._grids = {each: _Grid(rows, steps, self._step_s) for each, rows in self.rows.items()}
        self._busiest = sorted(self.rows, key=lambda each: -self._sum(each, "came"))
        since = self._last - (self._last - self._first) / STILL
        self._still = [
            each
            for each in self._busiest
            if self.rows[each][-1]["backlog"] > 0
            and max((row["step"] for row in self.rows[each] if row["went"]), default=self._first - 1) < since
        ]

    @property
    def seconds(self) -> int:
        """How long it was, in whole steps."""
        return (self._last - self._first + 1) * self._step_s

    def total(self, column: str) -> float:
        """Of all addresses."""
        return sum(self._sum(each, column) for each in self.rows)

    def _sum(self, address: str, column: str) -> float:
        return sum(row[column] or 0 for row in self.rows[address])

    def plots(self) -> str:
        """Of the six that have most of what is drawn."""
        if not self.rows:
            return ""
        grids, times = self._grids, next(iter(self._grids.values())).times
        shown = self._busiest[:SERIES]
        waiting = sorted(grids, key=lambda each: -max(grids[each].level("backlog")))[:SERIES]
        slowest = sorted(grids, key=lambda each: -max([v or 0 for v in grids[each].most("p95_ms")]))[:SERIES]
        per = _per(self._step * self._step_s)
        plots = [
            lines(Plot("Messages in", per), times, {each: grids[each].sums("came") for each in shown}),
            lines(Plot("Messages out", per), times, {each: grids[each].sums("went") for each in shown}),
            lines(Plot("Waiting", "messages"), times,
                  {each: grids[each].level("backlog") for each in waiting}),
            lines(Plot("From put to end, 95 of 100 within", "ms", log=True), times,
                  {each: grids[each].most("p95_ms") for each in slowest}),
            lines(Plot("Octets in", per), times, {each: grids[each].sums("bytes") for each in shown}),
        ]  # fmt: skip
        few = f"<p class='small'>the {SERIES} of {len(self.rows):,} addresses with most of it</p>"
        also = few if len(self.rows) > SERIES else ""
        return f"<section><h3>Traffic</h3>{also}<div class='plots'>{''.join(plots)}</div></section>"

    def sketches(self) -> str:
        """A small drawing for each address; those that stand still come first."""
        if not self.rows:
            return ""
        order = [*self._still, *[each for each in self._busiest if each not in self._still]]
        cards = "".join(self._card(each) for each in order[:DRAWN])
        hidden = len(order) - DRAWN
        also = f"<p class='small'>{hidden:,} more are in the table only</p>" if hidden > 0 else ""
        key = (
            "<p class='small legend'><span><i class='k s0'></i>in</span><span><i class='k s2'></i>out</span>"
            "<span><i class='k s1'></i>waiting</span></p>"
        )
        return f"<section><h3>Each address</h3>{key}{also}<div class='cards'>{cards}</div></section>"

    def _card(self, address: str) -> str:
        grid, backlog = self._grids[address], self.rows[address][-1]["backlog"]
        told = f"{short(self._sum(address, 'came'))} in, {short(self._sum(address, 'went'))} out"
        if backlog:
            told += f", {short(backlog)} wait"
        still = '<em class="still">stands still</em>' if address in self._still else ""
        drawing = sketch(grid.sums("came"), grid.sums("went"), grid.level("backlog"))
        label = f"<figcaption>{name(address)}{still}</figcaption>"
        return f"<figure>{label}{drawing}<small>{told}</small></figure>"

    def addresses(self) -> str:
        """All of them, with their sums."""
        rows = []
        for address in self._busiest[:ROWS]:
            mine = self.rows[address]
            slow = [row["p99_ms"] for row in mine if row["p99_ms"] is not None]
            sums = [self._sum(address, column) for column in ("came", "bytes", "went", "redelivered")]
            rows.append((address, *sums, mine[-1]["backlog"], max(slow, default=0.0)))
        heads = ("address", "in", "octets in", "out", "delivered again", "waiting at the end", "worst p99 ms")
        return table(heads, rows) if rows else ""


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
        self._cells: list[Rows] = [[] for _ in self.times]
        for row in rows:
            self._cells[(row["step"] - steps.start) // steps.step].append(row)

    def sums(self, column: str) -> list[float]:
        """The total of each step."""
        return [sum(row[column] or 0 for row in cell) for cell in self._cells]

    def most(self, column: str) -> list[float | None]:
        """The highest of each step."""
        found = [[row[column] for row in cell if row[column] is not None] for cell in self._cells]
        return [max(values) if values else None for values in found]

    def level(self, column: str) -> list[float]:
        """The last of each step; where nothing happened it stays."""
        levels, now = [], 0.0
        for cell in self._cells:
            now = cell[-1][column] if cell else now
            levels.append(now)
        return levels


def _clients(result: AuditResult) -> str:
    """Who sent, and who received."""
    sent = [
        (row["container"], row["address"], row["sent"], row["bytes"] or 0, _clock(row["first"]),
         _clock(row["last"]))
        for row in result.clients if row["sent"]
    ]  # fmt: skip
    columns = ("delivered", "accepted", "rejected", "given_back")
    taken = [
        (row["container"], row["address"], *(row[each] for each in columns), _clock(row["last"]))
        for row in result.clients if any(row[each] for each in columns)
    ]  # fmt: skip
    of_sent = ("producer", "address", "messages", "octets", "first", "last")
    of_taken = ("consumer", "address", "delivered", "accepted", "rejected", "given back", "last")
    producers = f"<section><h3>Producers</h3>{table(of_sent, sent)}</section>" if sent else ""
    consumers = f"<section><h3>Consumers</h3>{table(of_taken, taken)}</section>" if taken else ""
    return producers + consumers


def _clock(time: Any) -> str:
    return str(time)[:19]


def _transactions(result: AuditResult) -> str:
    if not result.resolvers:
        return ""
    numbers = ("n", "checks", "p50_ms", "p95_ms", "p99_ms")
    rows = [
        (row["resolver"], row["outcome"], *(row[each] or 0 for each in numbers)) for row in result.resolvers
    ]
    slow = {f"{row['resolver']}, {row['outcome']}": float(row["p95_ms"] or 0) for row in result.resolvers}
    heads = ("decided by", "outcome", "half messages", "checks", "p50 ms", "p95 ms", "p99 ms")
    plot = bars(Plot("From put to decision, 95 of 100 within", "ms"), slow)
    return f"<section><h3>Half messages</h3><div class='plots'>{plot}</div>{table(heads, rows)}</section>"


def _deaths(result: AuditResult) -> str:
    if not result.deaths:
        return ""
    many = {f"{row['address']}: {row['reason']}": float(row["n"]) for row in result.deaths[:12]}
    rows = [
        (row["address"], row["reason"], row["n"], _clock(row["first"]), _clock(row["last"]))
        for row in result.deaths[:ROWS]
    ]
    plot = bars(Plot("Given up", "messages"), many)
    listed = table(("address", "reason", "messages", "first", "last"), rows)
    return f"<section><h3>Dead letters</h3><div class='plots'>{plot}</div>{listed}</section>"


def _audits(result: AuditResult) -> str:
    count: dict[str, int] = defaultdict(int)
    for kind in result.kinds:
        count[kind.audit] += kind.count
    rows = [(each, count[each], Shown(f"{took:.1f}")) for each, took in result.audits.items()]
    return f"<section><h3>Audits</h3>{table(('audit', 'findings', 'seconds'), rows)}</section>"


# Tables; where scripts run they are sorted by a click on a head


class Shown(str):
    """A number as it is to be shown."""


def name(text: str) -> str:
    """A name or a sentence from outside: it keeps its direction to itself."""
    return f"<bdi>{escape(text)}</bdi>"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Texts and numbers, row by row."""
    kept = list(rows)
    is_number = [bool(kept) and not _is_text(value) for value in (kept[0] if kept else heads)]
    titles = "".join(
        f'<th scope="col"{" class=n" if number else ""}>{head}</th>'
        for head, number in zip(heads, is_number, strict=True)
    )
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in kept)
    return (
        f'<div class="wide" tabindex="0"><table><thead><tr>{titles}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Shown)


def _cell(value: Any) -> str:
    if _is_text(value):
        return f"<td>{name(value)}</td>"
    if isinstance(value, Shown):
        return f'<td class="n">{value}</td>'
    return f'<td class="n" data-v="{value}">{short(value)}</td>'

"""The reports as pages: one of a run, and a matrix of several.

Both are made of runs' JSON, and hold everything that they need: a page can be mailed, or put on any server.
What a broker said is escaped, and apart in its direction of writing.
"""

import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from amqp_broker.conformance.requirements import section_key
from amqp_broker.conformance.statement import TITLES

STYLE = Path(__file__).with_name("page.css")

STRENGTHS = ("MUST", "SHOULD", "other")

NAMES = {
    "passed": "passed",
    "failed": "failed",
    "admitted": "known gap",
    "skipped": "not applicable",
    "not run": "not run",
    "left out": "left out",
    "unseen": "no scenario",
}
"""What a reader of a page is told of a status, in this order."""

JUDGED = ("passed", "failed", "admitted")

Run = dict[str, Any]


def load_run(path: Path) -> Run:
    """Returns the JSON of a run; raises OSError, or ValueError when it is none."""
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        _ = [run[key] for key in ("broker", "counts", "incidents", "scenarios", "requirements", "title")]
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not the JSON of a run: {error}") from error
    return dict(run)


def _bdi(text: object) -> str:
    """What somebody else has said."""
    return f"<bdi>{escape(str(text))}</bdi>"


def _page(title: str, body: Iterable[str]) -> str:
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE.read_text(encoding='utf-8')}</style></head><body>",
        *body,
        "</body></html>\n",
    ]
    return "\n".join(lines)


def _mark(status: str, text: str = "") -> str:
    return f'<span class="mark {status.replace(" ", "-")}">{escape(text or NAMES[status])}</span>'


def name_of(run: Run) -> str:
    """What the broker of a run is called: by its description, or by itself."""
    said = run["broker"]["properties"]
    name = run["title"] or said.get("product") or run["broker"]["container_id"] or run["broker"]["address"]
    version = said.get("version", "")
    return f"{name} {version}".strip() if version not in str(name) else str(name)


# ---- a run -------------------------------------------------------------------------------------------------


def _cards(run: Run) -> str:
    cards = []
    for strength in STRENGTHS[:2]:
        counts = run["counts"][strength]
        judged = sum(counts[status] for status in JUDGED)
        bar = "".join(
            f'<i class="{status}" style="flex-grow:{counts[status]}"></i>'
            for status in JUDGED
            if counts[status]
        )
        rest = ", ".join(
            f"{counts[status]} {name}"
            for status, name in NAMES.items()
            if status != "passed" and counts[status]
        )
        cards.append(
            f'<div class="card">{strength}<br><b>{counts["passed"]}</b> of {judged} judged passed'
            f'<div class="bar">{bar}</div><span class="dim">{rest}</span></div>'
        )
    counts = run["scenarios_counts"]
    rest = ", ".join(f"{counts[one]} {NAMES[one]}" for one in NAMES if one != "passed" and counts.get(one))
    cards.append(
        f'<div class="card">Scenarios<br><b>{counts["passed"]}</b> of {len(run["scenarios"])} passed'
        f'<br><span class="dim">{rest}</span></div>'
    )
    return f'<div class="cards">{"".join(cards)}</div>'


def _incidents(run: Run) -> Iterable[str]:
    for one in run["incidents"]:
        which = "After" if one["proven"] else "While these ran, of which one may have done it:"
        names = ", ".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in one["scenarios"])
        yield (
            f'<div class="incident"><b>The broker {escape(one["trouble"])}.</b> {which} '
            f"{names or 'none that failed'}.<br>{_bdi(one['detail'])}; {_bdi(one['after'])}.</div>"
        )


def _by_the_way(run: Run, rows: dict[str, dict[str, Any]]) -> Iterable[str]:
    """Rules that the broker broke in scenarios about others, each once."""
    found: dict[str, dict[str, str]] = {}
    for one in run["scenarios"]:
        for breach in one.get("by_the_way", []):
            found.setdefault(breach["rule"], {}).setdefault(one["id"], breach["text"])
    if not found:
        return
    yield '<section><h2 id="by-the-way">Broken by the way</h2>'
    for rule, places in found.items():
        sentence = escape(rows[rule]["sentence"]) if rule in rows else ""
        names = ", ".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in places)
        first = _bdi(next(iter(places.values())))
        yield f"<blockquote>{escape(rule)}: “{sentence}”</blockquote><p>{first}</p><p>In {names}.</p>"
    yield "</section>"


def _scenario(one: dict[str, Any], rows: dict[str, dict[str, Any]]) -> str:
    """One dialogue; the frames of those that did not pass."""
    status = one["status"]
    name = escape(one["id"])
    shown = f'class="{status.replace(" ", "-")}"' + (" open" if status == "failed" else "")
    parts = [f"<p>{_bdi(one['message'])}</p>"] if one["message"] else []
    for row_id in one["requirements"]:
        row = rows.get(row_id)
        if row:
            parts.append(
                f"<blockquote>{escape(row_id)} {escape(row['title'])}"
                f"{' (' + escape(row['level']) + ')' if row['strength'] != 'other' else ''}: "
                f"“{escape(row['sentence'])}”</blockquote>"
            )
    by_the_way = one.get("by_the_way", [])
    for breach in by_the_way:
        mark, rule = _mark("failed", "by the way"), escape(breach["rule"])
        parts.append(f"<p>{mark} {rule}: {_bdi(breach['text'])}</p>")
    if one["transcript"] and (by_the_way or status in ("failed", "admitted", "not run")):
        parts.append(f'<pre dir="ltr">{escape(chr(10).join(one["transcript"]))}</pre>')
    return (
        f'<details id="{name}" {shown}><summary>{_mark(status)} <code>{name}</code>'
        f'<span class="title">{escape(one["title"])}</span></summary>'
        f"<div>{''.join(parts)}</div></details>"
    )


def _chapters(scenarios: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Scenarios by section at two levels, in the standard's order."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in scenarios:
        found.setdefault(".".join(one["id"].split("/")[0].split(".")[:2]), []).append(one)
    return {name: found[name] for name in sorted(found, key=section_key)}


def report_page(run: Run) -> str:
    """Returns a run as a page, by section, with the frames of each failure."""
    rows = {row["id"]: row for row in run["requirements"]}
    chapters = _chapters(run["scenarios"])
    name = name_of(run)
    body = [
        "<header><h1>AMQP 1.0 conformance</h1>",
        f"<p><b>{_bdi(name)}</b> <span class=dim>{_bdi(run['broker']['address'])}; "
        f"{escape(run['profile'])}; {run['seconds']:.0f} s</span></p></header>",
        *_incidents(run),
        _cards(run),
        "<nav>",
        *(
            f'<a href="#{chapter}"{_failing(found)}>{escape(chapter)} {escape(TITLES.get(chapter, ""))}</a>'
            for chapter, found in chapters.items()
        ),
        "</nav>",
        *_by_the_way(run, rows),
    ]
    for chapter, found in chapters.items():
        passed = sum(one["status"] == "passed" for one in found)
        body.append(
            f'<section><h2 id="{chapter}">{escape(chapter)} {escape(TITLES.get(chapter, ""))} '
            f'<span class="dim">{passed} of {len(found)} passed</span></h2>'
        )
        body.extend(_scenario(one, rows) for one in found)
        body.append("</section>")
    return _page(f"AMQP 1.0 conformance: {name}", body)


def _failing(scenarios: Iterable[dict[str, Any]]) -> str:
    return ' class="failed"' if any(one["status"] == "failed" for one in scenarios) else ""


# ---- several runs ------------------------------------------------------------------------------------------


def _totals(runs: Sequence[Run]) -> Iterable[str]:
    """MUST and SHOULD of each broker, apart."""
    yield '<div class="wide"><table><thead><tr><th></th>'
    yield "".join(f"<th>{_bdi(name_of(run))}</th>" for run in runs) + "</tr></thead><tbody>"
    for strength in STRENGTHS[:2]:
        for status in JUDGED:
            cells = "".join(f"<td>{run['counts'][strength][status]}</td>" for run in runs)
            yield f"<tr><th>{strength} {_mark(status)}</th>{cells}</tr>"
    for word in ("died", "hangs", "spins", "does not let anybody in any more"):
        counts = [sum(one["trouble"] == word for one in run["incidents"]) for run in runs]
        if any(counts):
            yield f"<tr><th>{word}</th>{''.join(f'<td>{count or chr(8211)}</td>' for count in counts)}</tr>"
    yield "</tbody></table></div>"


def _cell(one: dict[str, Any] | None) -> str:
    """One broker in one scenario; what it did instead can be opened."""
    if one is None:
        return '<td class="cell"><span class="dim">–</span></td>'
    mark = _mark(one["status"])
    if not one["message"]:
        return f'<td class="cell">{mark}</td>'
    return (
        f'<td class="cell"><details><summary>{mark}</summary><div class="dim">{_bdi(one["message"])}</div>'
        "</details></td>"
    )


def _matrix(runs: Sequence[Run]) -> Iterable[str]:
    by_id = [{one["id"]: one for one in run["scenarios"]} for run in runs]
    every = {one["id"]: one for run in runs for one in run["scenarios"]}
    yield '<div class="wide matrix"><table><thead><tr><th>scenario</th>'
    yield "".join(f"<th>{_bdi(name_of(run))}</th>" for run in runs) + "</tr></thead><tbody>"
    for chapter, found in _chapters(every.values()).items():
        yield (
            f'<tr class="section" id="{chapter}"><th colspan="{len(runs) + 1}"><a href="#{chapter}">'
            f"{escape(chapter)} {escape(TITLES.get(chapter, ''))}</a></th></tr>"
        )
        for one in found:
            cells = [known.get(one["id"]) for known in by_id]
            same = ' class="same"' if len({cell and cell["status"] for cell in cells}) == 1 else ""
            name = escape(one["id"])
            yield (
                f'<tr id="{name}"{same}><td><a href="#{name}"><code>{name}</code></a>'
                f'<br><span class="dim">{escape(one["title"])}</span></td>{"".join(map(_cell, cells))}</tr>'
            )
    yield "</tbody></table></div>"


def comparison_page(runs: Sequence[Run]) -> str:
    """Returns several runs as a page: a row for each scenario, with an address of its own (#2.7.3/handle)."""
    body = [
        "<header><h1>AMQP 1.0 conformance, compared</h1></header>",
        *_totals(runs),
        '<label><input type="checkbox" id="differing"> only where they differ</label>',
        *_matrix(runs),
    ]
    return _page("AMQP 1.0 conformance: " + ", ".join(name_of(run) for run in runs), body)

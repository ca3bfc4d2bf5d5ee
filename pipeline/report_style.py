"""The style sheet of the report, readable in light and dark, on a screen, a phone and paper; and the one
script, which sorts tables.
"""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #e3e7ec; --page: #f6f7f9;
  --card: #fff; --good: #1a7f4b; --bad: #b3261e; --warn: #9a6400;
  --c0: #2f6fde; --c1: #d9730d; --c2: #1f9d76; --c3: #a04bc8; --c4: #c2314f; --c5: #6b7787; }
@media (prefers-color-scheme: dark) { :root {
  --ink: #e6eaf0; --soft: #9aa6b5; --line: #2c343f; --card: #1a2029;
  --page: #12161c; --good: #46c48b; --bad: #ff7b72; --warn: #e3b341;
  --c0: #6ea2ff; --c1: #f0a35e; --c2: #55cfa8; --c3: #cf8cf0; --c4: #f2788f; --c5: #a3afbf; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 24px 20px 60px; }
header { display: flex; gap: 24px; align-items: center; padding: 20px 24px; border-radius: 12px;
  background: var(--card); border: 1px solid var(--line); border-left: 10px solid var(--good); }
header.fail { border-left-color: var(--bad); }
header > div { min-width: 0; }
h1 { margin: 0; font-size: 44px; letter-spacing: .04em; color: var(--good); }
header.fail h1 { color: var(--bad); }
h2 { margin: 0; font-size: 20px; } h3 { margin: 34px 0 10px; font-size: 18px; }
header p { margin: 2px 0 0; color: var(--soft); overflow-wrap: anywhere; }
.small, small { font-size: 13px; color: var(--soft); font-weight: normal; }
.note { padding: 10px 14px; border-left: 4px solid var(--warn); background: var(--card);
  overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(125px, 1fr)); gap: 12px;
  margin-top: 14px; }
.tiles div { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px;
  color: var(--soft); }
.tiles b { display: block; font-size: 24px; color: var(--ink); white-space: nowrap; }
.tiles .bad b { color: var(--bad); } .tiles .warn b { color: var(--warn); }
details { background: var(--card); border: 1px solid var(--line); border-radius: 10px; margin: 8px 0;
  padding: 10px 14px; }
summary { cursor: pointer; overflow-wrap: anywhere; }
summary em { font-style: normal; font-weight: 600; margin-right: 6px; }
.such { display: block; padding-left: 16px; font-size: 13px; color: var(--soft); }
details[open] .such { display: none; }
.fault em, .still { color: var(--bad); } .warning em { color: var(--warn); }
.wide { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  margin: 10px 0; max-height: 70vh; }
details .wide { border: 0; margin: 4px 0 0; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: 6px 12px; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
th { color: var(--soft); font-weight: 600; position: sticky; top: 0; background: var(--card);
  white-space: nowrap; }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid var(--c0); }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
td { min-width: 6em; max-width: 34em; overflow-wrap: anywhere; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } td.n { white-space: nowrap; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 480px), 1fr)); gap: 14px; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 210px), 1fr)); gap: 10px; }
.cards svg { height: 56px; } .cards figcaption { font-size: 14px; display: flex; gap: 8px; }
.cards bdi { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; min-width: 0; flex: 1; }
.still { font-style: normal; font-size: 12px; white-space: nowrap; }
figure { margin: 0; min-width: 0; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; padding: 12px 14px; }
figcaption { font-weight: 600; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 13px; }
.legend span { display: flex; align-items: center; max-width: 14em; min-width: 0; }
.legend bdi { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.legend i { flex: none; width: 10px; height: 10px; border-radius: 3px; margin-right: 5px; }
svg { width: 100%; height: auto; display: block; margin-top: 6px; }
.t { fill: var(--soft); font-size: 12px; } .g { stroke: var(--line); }
.l { fill: none; stroke-width: 2; stroke-linejoin: round; vector-effect: non-scaling-stroke; }
.a { opacity: .25; stroke: none; }
@media (max-width: 640px) { main { padding: 12px 10px 40px; } header { gap: 14px; padding: 14px; }
  h1 { font-size: 30px; } h2 { font-size: 17px; } .tiles { gap: 8px; } .tiles div { padding: 8px 12px; }
  .tiles b { font-size: 20px; } .t { font-size: 16px; } th, td { padding: 5px 8px; }
  td:not(.n) { min-width: 12em; } }
@media print { .wide { max-height: none; } }
""" + "".join(
    f".l.s{n} {{ stroke: var(--c{n}); }} .m.s{n}, .bar.s{n}, .a.s{n} {{ fill: var(--c{n}); }} "
    f".k.s{n} {{ background: var(--c{n}); }}\n"
    for n in range(6)
)
SCRIPT: Final = """
for (const head of document.querySelectorAll("th")) {
  const button = document.createElement("button");
  button.textContent = head.textContent;
  head.replaceChildren(button);
  button.addEventListener("click", () => {
    const table = head.closest("table"), rows = [...table.tBodies[0].rows], at = head.cellIndex;
    const value = row => { const cell = row.cells[at];
      return cell.classList.contains("n") ? Number(cell.dataset.v ?? cell.textContent) : cell.textContent; };
    const isNumber = head.classList.contains("n");
    const before = head.getAttribute("aria-sort");
    const up = before ? before !== "ascending" : !isNumber;
    const compare = isNumber ? (a, b) => value(a) - value(b)
      : (a, b) => value(a).localeCompare(value(b), undefined, { numeric: true });
    rows.sort((a, b) => up ? compare(a, b) : compare(b, a));
    for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    table.tBodies[0].append(...rows);
  });
}
"""
"""Each head of a table becomes a button that sorts its rows: numbers falling first, texts rising."""

"""The style sheet of the report: readable in light and dark, on a screen and on paper."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { --ink: #1c2430; --soft: #5b6675; --line: #e3e7ec; --page: #f6f7f9; --card: #fff; --good: #1a7f4b;
  --bad: #b3261e; --warn: #9a6400;
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
h1 { margin: 0; font-size: 44px; letter-spacing: .04em; color: var(--good); }
header.fail h1 { color: var(--bad); }
h2 { margin: 0; font-size: 20px; } h3 { margin: 34px 0 10px; font-size: 18px; }
header p { margin: 2px 0 0; color: var(--soft); overflow-wrap: anywhere; }
.small, small { font-size: 13px; color: var(--soft); font-weight: normal; }
.note { padding: 10px 14px; border-left: 4px solid var(--warn); background: var(--card); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 12px;
  margin-top: 14px; }
.tiles div { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px;
  color: var(--soft); }
.tiles b { display: block; font-size: 26px; color: var(--ink); }
details { background: var(--card); border: 1px solid var(--line); border-radius: 10px; margin: 8px 0;
  padding: 10px 14px; }
summary { cursor: pointer; } summary em { font-style: normal; font-weight: 600; margin-right: 6px; }
.fault em { color: var(--bad); } .warning em { color: var(--warn); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: 8px 0; font-size: 14px; }
th, td { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { color: var(--soft); font-weight: 600; } td.n { font-variant-numeric: tabular-nums; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 480px), 1fr)); gap: 14px; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 14px; }
figcaption { font-weight: 600; } .legend { float: right; font-weight: normal; font-size: 13px; }
.legend span { margin-left: 12px; white-space: nowrap; }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 5px; }
svg { width: 100%; height: auto; display: block; margin-top: 6px; }
.t { fill: var(--soft); font-size: 12px; } .g { stroke: var(--line); }
.l { fill: none; stroke-width: 2; stroke-linejoin: round; }
""" + "".join(
    f".l.s{n} {{ stroke: var(--c{n}); }} .m.s{n}, .bar.s{n} {{ fill: var(--c{n}); }} "
    f".k.s{n} {{ background: var(--c{n}); }}\n"
    for n in range(6)
)

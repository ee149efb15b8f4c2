"""How the report looks: light or dark, on a screen or a phone."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark;
  --page: #f6f7f9; --card: #fff; --text: #1c2330; --soft: #667085; --rule: #e3e7ee;
  --good: #12805c; --bad: #c0352b; --warn: #9a6700;
  --c0: #2563eb; --c1: #d9480f; --c2: #12805c; --c3: #9333ea; --c4: #b7791f; --c5: #0891b2;
  --c6: #be185d; --c7: #4d5b73; }
@media (prefers-color-scheme: dark) { :root {
  --page: #11151c; --card: #1a202b; --text: #e6e9ef; --soft: #98a2b3; --rule: #2c3442;
  --good: #4ade80; --bad: #ff7b72; --warn: #e3b341;
  --c0: #60a5fa; --c1: #fb923c; --c2: #4ade80; --c3: #c084fc; --c4: #facc15; --c5: #22d3ee;
  --c6: #f472b6; --c7: #a3b0c6; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 20px 16px 40px; }
h1 { font-size: 1.6rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 0 0 10px; }
p, footer { color: var(--soft); margin: 4px 0; font-size: .9rem; }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 10px;
  padding: 16px; margin-top: 16px; }
.outcome { font-size: .85rem; font-weight: 600; vertical-align: middle; padding: 2px 10px;
  border-radius: 99px; border: 1px solid currentColor; color: var(--good); }
.outcome.failed { color: var(--bad); }
.outcome.stopping, .outcome.running { color: var(--warn); }
.cards { display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(120px, 1fr)); }
.cards b { display: block; font-size: 1.45rem; font-variant-numeric: tabular-nums; }
.cards span { color: var(--soft); font-size: .85rem; }
.troubles { border-color: var(--bad); }
.troubles ul { margin: 0; padding-left: 18px; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 4px 0 8px; font-size: .85rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .88rem;
  font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 6px 10px; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
th:first-child, .quarantine td:nth-child(2), .quarantine th:nth-child(2) { text-align: left; }
.targets { margin: 12px 0 0; padding: 0; list-style: none; font-size: .88rem; }
.targets li { overflow-wrap: anywhere; } .targets b { font-weight: 600; margin-right: 4px; }
thead th { color: var(--soft); font-weight: 500; }
tbody th { font-weight: 600; }
tr.failed th { color: var(--bad); }
.quarantine .bar { width: 40%; min-width: 90px; }
.bar i { display: block; height: 10px; border-radius: 3px; background: var(--c1); }
.key { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 7px; }
.keys { display: flex; flex-wrap: wrap; gap: 4px 18px; color: var(--text); margin-bottom: 12px; }
.charts { display: grid; gap: 20px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); }
figure { margin: 0; min-width: 0; }
figcaption { color: var(--soft); font-size: .88rem; margin-bottom: 4px; }
figcaption b { color: var(--text); margin-right: 6px; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font-size: 11px; }
.grid { stroke: var(--rule); } .tick { stroke: var(--soft); }
polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
polyline.more { stroke-dasharray: 5 4; }
.hover { fill: transparent; } g:hover .hover { fill: var(--soft); fill-opacity: .35; }
""" + "".join(
    f"i.c{number} {{ background: var(--c{number}); }} polyline.c{number} "
    f"{{ stroke: var(--c{number}); }} circle.c{number} {{ fill: var(--c{number}); }}\n"
    for number in range(8)
)

"""The style sheet of a card: light or dark as the system is set, for screens of all widths and for print."""

from __future__ import annotations

__all__ = ["STYLE"]

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #f6f7f9; --sheet: #fff; --ink: #16202c; --soft: #566373; --line: #dde3ea; --faint: #eef1f5;
  --accent: #0b6bcb; --bar: #3b8ee0; --bar-soft: #cfe2f7; --bad: #b3261e; --bad-soft: #fbe9e7; --good: #1b7f4b;
  --shadow: 0 1px 2px rgb(20 32 50 / 8%), 0 4px 16px rgb(20 32 50 / 5%);
  --mono: ui-monospace, "SF Mono", "Cascadia Code", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #10151c; --sheet: #182029; --ink: #e6ebf1; --soft: #9aa8b8; --line: #2b3643; --faint: #202a35;
    --accent: #6cb2ff; --bar: #4f9be8; --bar-soft: #24405f; --bad: #ff8a80; --bad-soft: #3a2220; --good: #6fd6a0;
    --shadow: none;
  }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 4rem; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, "DejaVu Sans", sans-serif;
}
.skip { position: absolute; left: -999px; }
.skip:focus { left: 1rem; top: 1rem; z-index: 9; background: var(--sheet); padding: .5rem 1rem; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; border-radius: 4px; }
header, main, footer { max-width: 76rem; margin: 0 auto; padding: 0 clamp(.9rem, 3vw, 2rem); }
header { padding-top: 2.2rem; }
h1 { font-size: clamp(1.35rem, 4vw, 2rem); line-height: 1.2; margin: 0 0 .35rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 0 0 .8rem; }
h3 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
p { margin: 0 0 .8rem; max-width: 70ch; }
.soft { color: var(--soft); }
.small { font-size: .84rem; }
nav {
  position: sticky; top: 0; z-index: 5; background: var(--paper); border-bottom: 1px solid var(--line);
  margin-top: 1.2rem;
}
nav ul {
  display: flex; gap: .2rem 1.1rem; list-style: none; max-width: 76rem; margin: 0 auto; overflow-x: auto;
  padding: .55rem clamp(.9rem, 3vw, 2rem);
}
nav a { color: var(--soft); text-decoration: none; white-space: nowrap; padding: .15rem 0; font-size: .92rem; }
nav a:hover { color: var(--accent); text-decoration: underline; }
a { color: var(--accent); }
section { background: var(--sheet); border: 1px solid var(--line); border-radius: 14px; box-shadow: var(--shadow);
  padding: clamp(1rem, 2.5vw, 1.6rem); margin: 1.3rem 0; }
.tiles {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .8rem; margin: 1.2rem 0 0;
  padding: 0;
}
.tiles div {
  background: var(--sheet); border: 1px solid var(--line); border-radius: 12px; padding: .7rem .9rem;
  box-shadow: var(--shadow);
}
.tiles dt { color: var(--soft); font-size: .82rem; }
.tiles dd { margin: 0; font-size: 1.35rem; font-weight: 650; font-variant-numeric: tabular-nums; }
.tiles .bad dd { color: var(--bad); }
.tiles .good dd { color: var(--good); }
.sheet { list-style: none; margin: 0; padding: 0; display: grid; gap: .9rem;
  grid-template-columns: repeat(auto-fill, minmax(min(11.5rem, 100%), 1fr)); }
.sheet > li {
  border: 1px solid var(--line); border-radius: 10px; overflow: hidden; background: var(--paper);
  display: flex; flex-direction: column;
}
.sheet .seen { background: var(--faint); display: grid; place-items: center; min-height: 3rem; }
.sheet img { display: block; width: 100%; height: 9.5rem; object-fit: contain; }
.sheet img.tiny, .sheet img.array { image-rendering: pixelated; }
.sheet img.array { height: 4.5rem; object-fit: fill; }
.sheet audio { width: 100%; min-width: 0; height: 2.6rem; margin: .4rem 0; }
.sheet svg { width: 100%; height: 3.2rem; margin: .3rem 0; }
.sheet .told { padding: .55rem .7rem .65rem; min-width: 0; }
.sheet .key { font: 600 .78rem/1.35 var(--mono); overflow-wrap: anywhere; }
.sheet dl { margin: .3rem 0 0; font-size: .8rem; }
.sheet dl > div { display: flex; gap: .45rem; }
.sheet dt { color: var(--soft); flex: none; }
.sheet dd {
  margin: 0; overflow-wrap: anywhere; display: -webkit-box; -webkit-line-clamp: 4; line-clamp: 4;
  -webkit-box-orient: vertical; overflow: hidden;
}
.tag {
  display: inline-block; background: var(--bar-soft); border-radius: 99px; padding: 0 .55rem; font-weight: 600;
}
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
caption { text-align: left; color: var(--soft); padding-bottom: .4rem; font-size: .86rem; }
th, td {
  text-align: left; padding: .4rem .9rem .4rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
}
tr:last-child > * { border-bottom: 0; }
thead th { color: var(--soft); font-weight: 600; font-size: .82rem; white-space: nowrap; }
tbody th { font: 600 .88rem/1.6 var(--mono); }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font: .86rem/1.55 var(--mono); }
textarea { width: 100%; background: var(--faint); color: var(--ink);
  border: 1px solid var(--line); border-radius: 10px;
  padding: .9rem 1rem; font: .86rem/1.55 var(--mono); resize: vertical; white-space: pre; overflow: auto; }
.field { border-top: 1px solid var(--line); padding: 1rem 0 .4rem; }
.field:first-of-type { border-top: 0; padding-top: 0; }
.field > .soft { margin: .1rem 0 .6rem; }
.plots {
  display: grid; gap: 1.1rem 1.6rem; grid-template-columns: repeat(auto-fill, minmax(min(17rem, 100%), 1fr));
}
figure { margin: 0; min-width: 0; }
figcaption { font-size: .84rem; margin-bottom: .25rem; }
figcaption b { font-weight: 600; }
svg { display: block; }
.histogram { width: 100%; height: 6rem; }
.histogram rect { fill: var(--bar); }
.histogram rect:hover { fill: var(--accent); }
.axis { display: flex; justify-content: space-between; color: var(--soft); font-size: .76rem;
  border-top: 1px solid var(--line);
  padding-top: .15rem; font-variant-numeric: tabular-nums; }
.line { fill: none; stroke: var(--bar); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.bars {
  display: grid; grid-template-columns: minmax(3rem, max-content) 1fr max-content; gap: .18rem .7rem;
  align-items: center; font-size: .86rem; margin: 0; padding: 0; list-style: none;
}
.bars li { display: contents; }
.bars .word {
  overflow: hidden; text-overflow: ellipsis; white-space: nowrap; max-width: 14rem; font-family: var(--mono);
  font-size: .8rem;
}
.bars .plain { font-family: inherit; font-size: .9rem; max-width: none; white-space: normal; }
.bars.tall { gap: .7rem 1rem; }
.bars.tall .track { height: 1.3rem; }
.bars .track { background: var(--faint); border-radius: 4px; height: .85rem; overflow: hidden; }
.bars .track i { display: block; height: 100%; background: var(--bar); border-radius: 4px; min-width: 2px; }
.bars .count { text-align: right; font-variant-numeric: tabular-nums; color: var(--soft); font-size: .8rem; }
.alarm {
  border-left: 4px solid var(--bad); background: var(--bad-soft); border-radius: 8px; padding: .6rem .9rem;
  margin-bottom: .9rem;
}
.fine { border-left: 4px solid var(--good); background: var(--faint); border-radius: 8px; padding: .6rem .9rem; }
.bad-text { overflow-wrap: anywhere; font-size: .84rem; }
footer { padding-top: .5rem; padding-bottom: 2.5rem; color: var(--soft); font-size: .84rem; }
@media (max-width: 30rem) {
  .tiles { grid-template-columns: repeat(2, 1fr); }
  .sheet { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .sheet img { height: 7rem; }
  .sheet img.array { height: 3.5rem; }
  .bars .word { max-width: 7rem; }
  .bars.tall { display: block; }
  .bars.tall li { display: grid; grid-template-columns: 1fr max-content; gap: .3rem 1rem; margin-bottom: .9rem; }
  .bars.tall .track { grid-column: 1 / -1; order: 1; height: .9rem; }
  .bars.tall .word { max-width: none; }
}
@media print { nav { display: none; } section { break-inside: avoid; box-shadow: none; } }
"""

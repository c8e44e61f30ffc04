# The page can be read without the script, which adds buttons to sort and a search box.
SCRIPT = """
'use strict';
for (const table of document.querySelectorAll('table.sortable')) {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const names = new Intl.Collator(undefined, {numeric: true, sensitivity: 'base'});
  const state = document.createElement('p');
  state.className = 'note';
  state.setAttribute('role', 'status');

  function value(row, place) {
    const cell = row.cells[place];
    return cell.dataset.sort === undefined ? cell.textContent : Number(cell.dataset.sort);
  }
  function sort(place) {
    const head = heads[place], before = head.getAttribute('aria-sort');
    // Numbers begin with the largest, names with A.
    const first = head.classList.contains('number') ? 'descending' : 'ascending';
    const order = before === null ? first : before === 'ascending' ? 'descending' : 'ascending';
    const sign = order === 'ascending' ? 1 : -1;
    for (const other of heads) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', order);
    const keys = new Map(rows.map(row => [row, value(row, place)]));
    rows.sort((a, b) => {
      const x = keys.get(a), y = keys.get(b);
      return sign * (typeof x === 'number' ? x - y : names.compare(x, y));
    });
    body.append(...rows);
  }
  heads.forEach((head, place) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener('click', () => sort(place));
  });

  const box = document.createElement('div'), label = document.createElement('label');
  const input = document.createElement('input');
  input.type = 'search';
  input.id = table.id + '-search';
  label.htmlFor = input.id;
  label.textContent = 'Search';
  box.className = 'search';
  box.append(label, input, state);
  table.parentElement.before(box);
  const texts = new Map(rows.map(row => [row, row.cells[0].textContent.toLowerCase()]));
  input.addEventListener('input', () => {
    const words = input.value.toLowerCase().split(/\\s+/).filter(Boolean);
    let seen = 0;
    for (const row of rows) {
      row.hidden = !words.every(word => texts.get(row).includes(word));
      seen += !row.hidden;
    }
    state.textContent = words.length ? `${seen.toLocaleString('en')} of ${rows.length.toLocaleString('en')} rows` : '';
  });
}
const watch = new ResizeObserver(boxes => {
  for (const {target} of boxes) target.classList.toggle('more', target.scrollWidth > target.clientWidth + 1);
});
for (const box of document.querySelectorAll('.scroll')) watch.observe(box);
"""

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #fbfaf7; --card: #ffffff; --ink: #1d2126; --quiet: #59616b; --line: #dddad2; --soft: #f1efe9;
  --edge: #1d212640;
  --accent: #0b5d7a; --good: #1d6b34; --bad: #a3281f; --good-ground: #e3f1e4; --bad-ground: #fbe6e3;
  --heat: 11, 93, 122; --heat-most: .6; --word: 196, 132, 0; --word-most: .55;
  --s0: #0b5d7a; --s1: #b4521e; --s2: #4f7a1f; --s3: #7a3e9d; --s4: #836700; --s5: #5b5f66;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #15181c; --card: #1d2126; --ink: #e8e6e1; --quiet: #a4abb4; --line: #363c44; --soft: #23282e;
    --edge: #000000cc;
    --accent: #7cc4dc; --good: #8fd3a0; --bad: #ffaaa0; --good-ground: #1d3524; --bad-ground: #43211d;
    --heat: 124, 196, 220; --heat-most: .42; --word: 235, 180, 60; --word-most: .34;
    --s0: #7cc4dc; --s1: #f0a47a; --s2: #a8cf76; --s3: #cfa3e8; --s4: #e0c45c; --s5: #bdc2c9;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-padding-top: 1rem; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
.layout { max-width: 76rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; }
header { margin-bottom: 1.25rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; overflow-wrap: anywhere; text-wrap: balance; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 0 0 .6rem; }
h3 { font-size: 1rem; line-height: 1.35; margin: 1.6rem 0 .4rem; }
header p, .note, figcaption, .caption, .quiet { color: var(--quiet); }
.note, figcaption, .caption { font-size: .9rem; }
p { margin: 0 0 .7rem; max-width: 48rem; overflow-wrap: anywhere; }
a { color: var(--accent); text-underline-offset: .15em; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; border-radius: .15rem; }
.skip { position: absolute; left: -100rem; }
.skip:focus { left: 1rem; top: .5rem; padding: .4rem .8rem; background: var(--card); }
nav { margin-bottom: 1.4rem; }
nav ul { list-style: none; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; }
nav a { display: inline-block; padding: .2rem 0; text-decoration: none; }
nav a:hover { text-decoration: underline; }
section { padding: 1.5rem 0 .75rem; border-top: 1px solid var(--line); margin-top: 1.25rem; }
section:first-child { border-top: 0; padding-top: 0; margin-top: 0; }
.summary { margin: 0 0 1rem; padding-left: 1.2rem; max-width: 48rem; }
.summary li { margin-bottom: .35rem; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: .6rem;
  margin: 0 0 1.25rem; }
.tiles > div { background: var(--card); border: 1px solid var(--line); border-radius: .4rem;
  padding: .55rem .8rem .6rem; }
.tiles dt { color: var(--quiet); font-size: .85rem; }
.tiles dd { margin: 0; font-size: 1.45rem; line-height: 1.25; font-variant-numeric: tabular-nums; }
/* A shadow at an edge says that there is more beyond it: the first two layers scroll with the table and hide it. */
.scroll { overflow-x: auto; margin: 0 0 1.1rem; max-width: 100%; width: fit-content; background:
  linear-gradient(to right, var(--ground) 50%, transparent) left / 2.5rem 100% no-repeat local,
  linear-gradient(to left, var(--ground) 50%, transparent) right / 2.5rem 100% no-repeat local,
  linear-gradient(to right, var(--edge), transparent) left / .75rem 100% no-repeat scroll,
  linear-gradient(to left, var(--edge), transparent) right / .75rem 100% no-repeat scroll; }
.more::before { content: "Scroll sideways for all columns \\2192"; position: sticky; left: 0; display: block;
  width: fit-content; color: var(--quiet); font-size: .85rem; padding: .2rem .45rem; }
.tall { max-height: 34rem; overflow-y: auto; border: 1px solid var(--line); border-radius: .4rem; width: 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .93rem; }
.caption { margin: 0 0 .25rem; }
.tall table { width: 100%; }
th, td { padding: .32rem .7rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { font-weight: 600; color: var(--quiet); vertical-align: bottom; line-height: 1.3; }
.tall thead th { position: sticky; top: 0; background: var(--ground); z-index: 1; box-shadow: 0 1px var(--line); }
th.text, td.text { text-align: left; overflow-wrap: anywhere; }
tbody th { font-weight: 400; min-width: 8rem; max-width: 24rem; }
tbody th.number { min-width: 0; }
td.best { font-weight: 700; }
.findings { table-layout: fixed; }
.findings th.text, .findings td.text { overflow-wrap: break-word; min-width: 0; max-width: none; }
.findings thead th { white-space: nowrap; }
.findings thead .document { width: 7.5rem; } .findings thead .label { width: 12rem; }
.findings thead .text:not(.document, .label, .why) { width: 27%; }
.findings thead .sure, .findings thead .gain { width: 5.5rem; }
.findings .label { font-weight: 600; } .findings .why { font-size: inherit; }
.scroll:has(.findings) { max-height: 80vh; }
code { font-size: .93em; overflow-wrap: anywhere; }
tbody tr:hover { background: var(--soft); }
th button { all: unset; cursor: pointer; font: inherit; color: inherit; }
th button:hover { color: var(--ink); }
th button:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
th button::after { content: "\\2195"; padding-left: .3em; opacity: .45; }
th[aria-sort=ascending] button::after { content: "\\2191"; opacity: 1; }
th[aria-sort=descending] button::after { content: "\\2193"; opacity: 1; }
th[aria-sort] { color: var(--ink); }
.search { display: flex; flex-wrap: wrap; align-items: center; gap: .4rem .8rem; margin: 0 0 .6rem; }
.search label { font-weight: 600; }
.search input { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--quiet);
  border-radius: .4rem; padding: .4rem .6rem; width: min(20rem, 100%); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); gap: 1rem 2rem;
  margin: 0 0 1.1rem; }
figure { margin: 0; max-width: 31rem; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--quiet); font: 12px system-ui, sans-serif; }
.grid { stroke: var(--line); }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.s0 { stroke: var(--s0); } .s1 { stroke: var(--s1); stroke-dasharray: 7 3; } .s2 { stroke: var(--s2);
  stroke-dasharray: 2 3; }
.s3 { stroke: var(--s3); stroke-dasharray: 10 3 2 3; } .s4 { stroke: var(--s4); stroke-dasharray: 5 5; }
.s5 { stroke: var(--s5); stroke-dasharray: 1 4; }
.ideal { stroke: var(--quiet); stroke-dasharray: 4 4; }
.dot, .bar { stroke: none; }
.dot.s0, .bar.s0 { fill: var(--s0); } .dot.s1, .bar.s1 { fill: var(--s1); } .dot.s2, .bar.s2 { fill: var(--s2); }
.dot.s3, .bar.s3 { fill: var(--s3); } .dot.s4, .bar.s4 { fill: var(--s4); } .dot.s5, .bar.s5 { fill: var(--s5); }
.matrix { font-size: .8rem; }
.matrix td { padding: .15rem .4rem; border: 1px solid var(--ground); min-width: 2.2rem;
  background: rgba(var(--heat), calc(var(--part, 0) * var(--heat-most))); }
.matrix tbody th { font-size: .85rem; max-width: 20rem; padding: .15rem .5rem; position: sticky; left: 0;
  background: var(--ground); }
.matrix thead th { padding: .15rem .4rem; text-align: right; }
.matrix td.own { outline: 1px solid var(--quiet); outline-offset: -1px; }
.example { background: var(--card); border: 1px solid var(--line); border-radius: .4rem; padding: .8rem 1rem;
  margin: 0 0 .8rem;
  break-inside: avoid; }
.example summary { cursor: pointer; overflow-wrap: anywhere; }
.example summary b { font-weight: 600; }
.example[open] summary { margin-bottom: .5rem; }
.example p { max-width: none; }
.example .document { margin-bottom: .6rem; }
.labels { display: flex; flex-wrap: wrap; gap: .35rem .5rem; list-style: none; margin: 0 0 .5rem; padding: 0; }
.labels li { border: 1px solid var(--line); border-radius: .3rem; padding: .08rem .5rem; font-size: .9rem;
  overflow-wrap: anywhere; min-width: 0; }
.labels .right { background: var(--good-ground); border-color: var(--good); }
.labels .wrong { background: var(--bad-ground); border-color: var(--bad); }
.labels .missed { border: 1px dashed var(--bad); }
.mark { font-weight: 700; padding-right: .3em; }
.right .mark { color: var(--good); } .wrong .mark, .missed .mark { color: var(--bad); }
mark { color: inherit; border-radius: .15rem; padding: 0 .08em;
  background: rgba(var(--word), calc(var(--part) * var(--word-most))); }
.why { font-size: .92rem; margin: .5rem 0 .2rem; }
.path { list-style: none; padding: 0; margin: .2rem 0; font-size: .92rem; }
.path b { font-weight: 600; font-variant-numeric: tabular-nums; }
.path li { border-left: 2px solid var(--line); padding: .1rem 0 .1rem .8rem; overflow-wrap: anywhere; }
footer { border-top: 1px solid var(--line); margin-top: 2rem; padding-top: 1rem; color: var(--quiet);
  font-size: .9rem; }
@media (min-width: 70rem) {
  .layout { display: grid; grid-template-columns: 12.5rem minmax(0, 1fr); gap: 0 2.5rem; }
  header, footer { grid-column: 2; } header { grid-row: 1; }
  nav { grid-row: 1 / span 2; position: sticky; top: 1.5rem; align-self: start; padding-top: .4rem; }
  nav ul { display: block; } nav a { padding: .22rem 0; line-height: 1.35; }
  main { grid-column: 2; }
}
@media (max-width: 30rem) {
  .layout { padding: 1rem .9rem 3rem; }
  th, td { padding: .3rem .45rem; }
  .tall { max-height: 75vh; }
}
@media (max-width: 48rem) {
  /* The names of the rows stay while the columns scroll. */
  .scroll :is(thead th:first-child, tbody th) { position: sticky; left: 0; background: var(--ground);
    box-shadow: inset 0 -1px var(--line); min-width: 7rem; max-width: 10rem; overflow-wrap: break-word; }
  .tall thead th:first-child { z-index: 2; }
  /* A finding is a paragraph here: five columns would be a letter wide each. */
  .findings thead { position: absolute; left: -100rem; }
  .findings, .findings tbody, .findings tr, .findings tbody th, .findings td { display: block; width: auto; }
  .findings tr { border-bottom: 1px solid var(--line); padding: .5rem .3rem; }
  .findings tbody th, .findings tbody td { border: 0; padding: .05rem .3rem; text-align: left; min-width: 0;
    max-width: none; }
  .findings th.document, .findings td.why { color: var(--quiet); font-size: .93em; }
  .findings .sure, .findings .gain { display: inline-block; }
  .findings .sure::before { content: "sure "; } .findings .gain::before { content: "gain "; }
}
@media (forced-colors: active) { .bar, .dot { forced-color-adjust: none; } mark { outline: 1px solid; } }
@media print {
  :root { --ground: #fff; --card: #fff; --ink: #000; --quiet: #444; --line: #bbb; --soft: #fff; --accent: #0b5d7a;
    --good: #1d6b34; --bad: #a3281f; --good-ground: #eef6ee; --bad-ground: #fbeeec; --heat: 11, 93, 122;
      --heat-most: .6; --word: 196, 132, 0; --word-most: .55;
    --s0: #0b5d7a; --s1: #b4521e; --s2: #4f7a1f; --s3: #7a3e9d; --s4: #836700; --s5: #5b5f66; }
  @page { margin: 16mm 14mm; }
  body { font-size: 10pt; }
  .layout { display: block; max-width: none; padding: 0; }
  nav, .search, .skip { display: none; }
  .scroll, .tall { overflow: visible; max-height: none; border: 0; width: auto; }
  .tall thead th { position: static; }
  th, td { padding: 2pt 4pt; }
  table { font-size: 9pt; }
  .matrix { font-size: 6.5pt; } .matrix td, .matrix tbody th, .matrix thead th { padding: 1pt 2pt; min-width: 0;
    font-size: 6.5pt; }
  tr, figure, .tiles > div { break-inside: avoid; }
  h2, h3, .caption { break-after: avoid; }
  thead { display: table-header-group; }
  .sortable tbody tr:nth-child(n+51) { display: none; }
  .figures { grid-template-columns: 1fr 1fr; }
  details::details-content { content-visibility: visible; display: block; }
  mark, td { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
@media not print { .on-paper { display: none; } }
"""

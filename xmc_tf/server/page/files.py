"""The page: three small files without external resources."""

_HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>xmc_tf playground</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/page.css">
</head>
<body>
<header>
  <h1 id="question">Which labels does this text get?</h1>
  <p id="about">Loading the model…</p>
</header>
<main>
  <div id="trouble" role="alert" hidden>
    <h2>This does not work</h2>
    <pre id="trouble-text"></pre>
    <button type="button" id="again">Try again</button>
  </div>
  <form id="form">
    <label for="text" id="text-title">Text</label>
    <textarea id="text" rows="6" autofocus aria-describedby="hint" spellcheck="false"></textarea>
    <div class="row" id="examples-row" hidden>
      <span id="examples-title">Examples:</span>
      <span id="examples" class="row" role="group" aria-labelledby="examples-title"></span>
    </div>
    <div class="row">
      <button type="submit" id="ask">Find labels</button>
      <label for="k" class="inline" id="k-title">Labels</label>
      <input type="number" id="k" min="1" value="1" required>
      <span id="hint">or <kbd>Ctrl</kbd> <kbd>Enter</kbd> in the text</span>
    </div>
  </form>
  <section aria-labelledby="found">
    <h2 id="found">Labels</h2>
    <p id="status" role="status">None yet.</p>
    <ol id="labels"></ol>
    <details id="scores" hidden>
      <summary>What the scores mean</summary>
      <p id="meaning"></p>
    </details>
  </section>
</main>
<script src="/page.js"></script>
</body>
</html>
"""

_CSS = """
:root {
  --ground: #fbfaf7; --card: #ffffff; --ink: #1d2126; --quiet: #59616b; --line: #d5d3cc;
  --accent: #0b5d7a; --on-accent: #ffffff; --bar: #a9cdd9; --bad: #9b1c1c; --bad-ground: #fdeeee;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #15181c; --card: #1d2126; --ink: #e8e6e1; --quiet: #a4abb4; --line: #3a4048;
    --accent: #7cc4dc; --on-accent: #10242c; --bar: #2d5564; --bad: #ffb4b4; --bad-ground: #3a1d1d;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 46rem; padding: 2rem 1.25rem 4rem;
  background: var(--ground); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif;
}
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
header p, #hint, #status, .examples { color: var(--quiet); }
header p { margin: 0 0 1.5rem; overflow-wrap: anywhere; }
label { display: block; font-weight: 600; margin-bottom: .25rem; }
textarea {
  width: 100%; padding: .75rem; font: inherit; color: inherit; background: var(--card);
  border: 1px solid var(--quiet); border-radius: .4rem; resize: vertical;
}
label.inline { display: inline; margin: 0; }
input { width: 5.5rem; padding: .5rem; font: inherit; color: inherit; background: var(--card);
  border: 1px solid var(--quiet); border-radius: .4rem; }
#examples { margin: 0; flex: 1; min-width: 0; }
#examples-title { color: var(--quiet); }
button.example { max-width: 100%; padding: .25rem .7rem; overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
  font-weight: 400; font-size: .9rem; color: var(--ink); background: var(--card); border-color: var(--quiet); }
#scores { margin-top: 1rem; color: var(--quiet); }
#scores summary { padding-left: 0; }
#scores p { margin: .25rem 0 0; }
.row { display: flex; flex-wrap: wrap; align-items: center; gap: .75rem; margin-top: .75rem; }
button {
  padding: .55rem 1.1rem; font: inherit; font-weight: 600; color: var(--on-accent); background: var(--accent);
  border: 1px solid transparent; border-radius: .4rem; cursor: pointer;
}
button:disabled { opacity: .55; cursor: default; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
kbd { padding: 0 .3em; border: 1px solid var(--line); border-radius: .25rem; font: inherit; font-size: .85em; }
#trouble { padding: 0 1rem 1rem; margin-bottom: 1.5rem; background: var(--bad-ground); border: 1px solid var(--bad);
  border-radius: .4rem; }
#trouble h2 { color: var(--bad); margin-top: .75rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .9rem; margin: 0 0 .75rem; }
ol { margin: 0; padding: 0; list-style: none; }
#labels > li { background: var(--card); border: 1px solid var(--line); border-radius: .4rem; margin-bottom: .4rem; }
summary { display: flex; align-items: baseline; gap: .75rem; padding: .5rem .75rem; cursor: pointer; }
summary::before { content: "▸"; color: var(--quiet); }
details[open] > summary::before { content: "▾"; }
summary::-webkit-details-marker { display: none; }
.name { flex: 1; overflow-wrap: anywhere; font-weight: 600; }
.score { font-variant-numeric: tabular-nums; }
.bar { height: .35rem; border-radius: .2rem; background: var(--line); overflow: hidden; }
.bar > span { display: block; height: 100%; background: var(--accent); }
summary { flex-wrap: wrap; }
summary > .bar { flex: 0 0 100%; }
.evidence { padding: .5rem .75rem .75rem; border-top: 1px solid var(--line); }
.evidence h3 { margin: 0 0 .35rem; font-size: .9rem; font-weight: 600; color: var(--quiet); }
.evidence p { margin: .4rem 0 0; font-size: .9rem; color: var(--quiet); }
.evidence ul { display: flex; flex-wrap: wrap; gap: .3rem .5rem; margin: 0; padding: 0; list-style: none; }
.evidence li { display: flex; gap: .5rem; max-width: 100%; padding: .05rem .5rem; font-size: .9rem;
  border: 1px solid var(--line); border-left: 3px solid var(--accent); border-radius: .25rem; }
.evidence li.against { border-left-color: var(--bad); }
.evidence li > :first-child { overflow-wrap: anywhere; min-width: 0; }
.path { padding: .25rem .75rem .75rem; border-top: 1px solid var(--line); }
.path li { padding: .4rem 0 0 1rem; border-left: 2px solid var(--bar); }
.path .line { display: flex; gap: .75rem; }
.path .line > :first-child { flex: 1; }
.examples { display: block; font-size: .9rem; overflow-wrap: anywhere; }
@media (forced-colors: active) { .bar > span { background: CanvasText; } }
"""

_JS = """
'use strict';
const $ = id => document.getElementById(id);
let scale = 'share', noun = 'label', asked = 0;

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function bar(score) {
  const share = scale === 'log' ? Math.exp(score) : score;
  const out = make('div', 'bar'), inner = make('span');
  out.setAttribute('aria-hidden', 'true');
  inner.style.width = (100 * Math.min(Math.max(share, 0), 1)).toFixed(1) + '%';
  out.append(inner);
  return out;
}

function duration(milliseconds) {
  return milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(1)} s`;
}

function step(title, score, examples) {
  const item = make('li'), line = make('div', 'line');
  line.append(make('span', '', title), make('span', 'score', score.toFixed(4)));
  item.append(line);
  if (scale !== 'none') item.append(bar(score));
  if (examples.length) item.append(make('span', 'examples', 'with ' + examples.join(', ')));
  return item;
}

function evidence(found) {
  const box = make('div', 'evidence'), list = make('ul');
  list.setAttribute('aria-label', 'Words that decided on ' + found.name);
  const parts = found.words.map(one => [one.word, one.contribution]);
  if (found.embedding) parts.push(['the embedding', found.embedding]);
  for (const [word, amount] of parts) {
    const item = make('li', amount < 0 ? 'against' : 'for');
    item.append(make('span', '', word), make('span', 'score', (amount < 0 ? '−' : '+') + Math.abs(amount).toFixed(3)));
    list.append(item);
  }
  const title = parts.length ? 'Words of the text, weight × value' : 'No word of the text is known.';
  box.append(make('h3', '', title), list);
  if (found.sum) box.append(make('p', '', `Score: ${found.sum}.`));
  else if (found.combined) box.append(make('p', '', `Score: ${found.combined}.`));
  for (const one of found.sources)
    box.append(make('p', '', `${one.source}: ${one.score.toFixed(4)}${one.note ? ' (' + one.note + ')' : ''}`));
  return box;
}

function row(found) {
  const item = make('li'), details = make('details'), summary = make('summary'), path = make('ol', 'path');
  summary.append(make('span', 'name', found.name), make('span', 'score', found.score.toFixed(4)));
  path.setAttribute('aria-label', 'Path through the tree to ' + found.name);
  for (const node of found.path)
    path.append(step(`Level ${node.level}: cluster ${node.node + 1} of ${node.of.toLocaleString('en')}`,
                     node.score, node.examples));
  path.append(step(found.name, found.score, []));
  if (scale !== 'none') summary.append(bar(found.score));  // labels that are folded away keep their bars
  details.append(summary);
  const why = found.words ? evidence(found) : null;
  details.append(path);
  if (why) details.append(why);
  item.append(details);
  return item;
}

function trouble(message) {
  $('trouble').hidden = !message;
  $('trouble-text').textContent = message || '';
}

async function fetched(path, body) {
  let reply;
  try {
    reply = await fetch(path, body && {
      method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)});
  } catch (error) {
    throw new Error('The server does not answer: start it again with python -m xmc_tf.playground.');
  }
  const answer = await reply.json();
  if (!reply.ok) throw new Error(answer.error);
  return answer;
}

function example(text) {
  const button = make('button', 'example', text.length > 40 ? text.slice(0, 39) + '…' : text);
  button.type = 'button';
  button.title = text.slice(0, 300);
  button.addEventListener('click', () => { $('text').value = text; ask(); });
  return button;
}

function showHistory() {  // the words of the page for a model of histories
  noun = 'item';
  const words = {question: 'Which item comes next?', 'text-title': 'History: one item in each line, the oldest first',
                 ask: 'Find items', 'k-title': 'Items', found: 'Items'};
  for (const id in words) $(id).textContent = words[id];
}

async function start() {
  trouble('');
  try {
    const about = await fetched('/about');
    scale = about.scale;
    $('k').max = about.k;
    $('k').value = about.shown || about.k;
    $('examples').replaceChildren(...about.examples.map(example));
    $('examples-row').hidden = !about.examples.length;
    $('meaning').textContent = about.meaning;
    $('scores').hidden = false;
    if (about.history) showHistory();
    const tree = ` in a tree of ${about.levels.map(n => n.toLocaleString('en')).join(' > ')} nodes`;
    $('about').textContent =
      `${about.labels.toLocaleString('en')} ${noun}s${about.history ? '' : tree}, from ${about.folder}`;
    $('ask').disabled = false;
  } catch (error) {
    $('about').textContent = 'There is no model.';
    $('ask').disabled = true;
    trouble(error.message);
  }
}

async function ask() {
  if (!$('k').reportValidity()) return;
  const mine = ++asked;
  $('status').textContent = 'Searching…';
  try {
    const answer = await fetched('/ask', {text: $('text').value, k: $('k').valueAsNumber});
    if (mine !== asked) return;  // a later question has been asked
    trouble('');
    $('labels').replaceChildren(...answer.labels.map(row));
    const count = answer.labels.length;
    const more = answer.unknown === undefined ? 'Open one to see its path through the tree.'
      : answer.unknown.length ? `Unknown: ${answer.unknown.join(', ')}.` : '';
    $('status').textContent = count === 0 ? `No ${noun} fits.`
      : `${count} ${noun}${count === 1 ? '' : 's'} in ${duration(answer.milliseconds)}, the best first. ${more}`;
  } catch (error) {
    if (mine !== asked) return;
    $('labels').replaceChildren();
    $('status').textContent = 'None.';
    trouble(error.message);
  }
}

$('form').addEventListener('submit', event => { event.preventDefault(); ask(); });
$('text').addEventListener('keydown', event => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey) && !$('ask').disabled) {
    event.preventDefault();
    ask();
  }
});
$('again').addEventListener('click', start);
$('ask').disabled = true;
start();
"""

# Path -> content type and content.
FILES = {
    "/": ("text/html; charset=utf-8", _HTML),
    "/page.css": ("text/css; charset=utf-8", _CSS),
    "/page.js": ("text/javascript; charset=utf-8", _JS),
}

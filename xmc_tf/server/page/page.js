'use strict';
let scale = 'share', noun = 'label', asked = 0;

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

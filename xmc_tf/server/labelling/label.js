'use strict';
let shown = null, current = 0, searched = 0;
const percent = share => Math.round(100 * share) + ' %';

function person() { return $('person').value.trim() || 'me'; }

async function attempt(work) {  // what failed is told, and can be tried again
  try {
    trouble('');
    return await work();
  } catch (error) {
    $('again').onclick = () => attempt(work);
    trouble(error.message);
  }
}

// Mark the words of a label in the text, in any case, at the beginning of words.
function mark(words) {
  const parts = words.map(word => word.split(' ').map(part => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
    .join('[^\\p{L}\\p{N}]+')).sort((a, b) => b.length - a.length);
  const text = shown.content, content = [];
  let end = 0;
  if (parts.length)
    for (const found of text.matchAll(new RegExp(`(?<![\\p{L}\\p{N}])(?:${parts.join('|')})[\\p{L}\\p{N}]*`, 'giu'))) {
      content.push(text.slice(end, found.index), make('mark', '', found[0]));
      end = found.index + found[0].length;
    }
  $('content').replaceChildren(...content, text.slice(end));
}

function choose(place, focus) {
  const items = [...$('labels').children];
  if (!items.length) return mark([]);
  current = Math.min(Math.max(place, 0), items.length - 1);
  items.forEach((item, at) => item.classList.toggle('current', at === current));
  mark(shown.labels[current].words);
  if (focus) items[current].querySelector('button').focus();
}

function button(label, answer, title) {
  const out = make('button', 'answer', title);
  out.type = 'button';
  out.setAttribute('aria-label', `${title} ${label.label}`);
  out.setAttribute('aria-pressed', label.answer === answer);
  out.addEventListener('click', () => decide(label, label.answer === answer ? 0 : answer));
  return out;
}

function row(label, place) {
  const item = make('li', label.answer < 0 ? 'rejected' : ''), name = make('span', 'name', label.label);
  if (place < 9) name.prepend(make('kbd', '', String(place + 1)), ' ');
  const score = make('span', 'score', label.score === null ? '' : label.score.toFixed(2));
  item.append(name, score, button(label, 1, 'Accept'), button(label, -1, 'Reject'));
  if (label.note) item.append(make('span', 'words note', label.note));
  if (label.words.length) item.append(make('span', 'words', label.words.join(', ')));
  item.addEventListener('focusin', () => choose(place));
  item.addEventListener('mouseenter', () => mark(label.words));
  return item;
}

function list(focus) {
  $('labels').replaceChildren(...shown.labels.map(row));
  choose(current, focus);
}

function decide(label, answer) {
  const text = shown.text, focus = $('labels').contains(document.activeElement);
  const pressed = focus && document.activeElement.textContent;
  return attempt(async () => {
    await fetched('/answer', {person: person(), text, label: label.label, answer});
    if (shown.text !== text) return;
    if (!shown.labels.includes(label)) current = shown.labels.push(label) - 1;
    label.answer = answer;
    list(focus);
    if (pressed === 'Reject') $('labels').children[current].querySelectorAll('button')[1].focus();
  });
}

function show(answer) {
  const {texts, finished, learned, figures, disagreements} = answer;
  shown = answer.text === null ? null : answer;
  current = 0;
  $('progress').textContent = `${finished.toLocaleString('en')} of ${texts.toLocaleString('en')} texts`
    + (learned > 0 ? `; the model has learned from ${learned.toLocaleString('en')}` : '');
  const about = (share, error) => `${percent(share)} ± ${(100 * error).toFixed(0)}`;
  $('figures').textContent = figures.documents >= 10 ? `On ${figures.documents} random texts, never learned from: the first `
    + `label is right for ${about(figures.precision, figures.precision_error)}, the first five have `
    + `${about(figures.recall, figures.recall_error)} of the labels. ` + (figures.promise
      ? `Accept the first label without looking: ${percent(figures.promise.share)} of the texts, at least `
        + `${percent(figures.promise.precision)} right.` : 'No promise can be made yet.') : '';
  $('annif').hidden = !answer.uris;
  $('disagreements').hidden = !disagreements.length;
  $('disagreements-title').textContent = `Disagreements (${disagreements.length})`;
  $('different').replaceChildren(...disagreements.map(one => {
    const item = make('li'), open = make('button', 'example', one.beginning);
    open.type = 'button';
    open.addEventListener('click', () => turn('/text', {text: one.text}));
    item.append(make('strong', '', one.label), `: ${one.accepted} yes, ${one.others} no `, open);
    return item;
  }));
  for (const id of ['done', 'skip', 'query']) $(id).disabled = !shown;
  $('name').textContent = shown ? `Text: ${shown.name}` : 'All texts are labelled.';
  $('query').value = '';
  search();
  if (shown) list(false);
  else for (const id of ['labels', 'content']) $(id).replaceChildren();
  $('content').focus();
}

let turning = false;
async function turn(path, more) {
  if (turning) return;  // a key that is held down
  turning = true;
  await attempt(async () => show(await fetched(path, {person: person(), ...more})));
  turning = false;
}

async function search() {
  const query = $('query').value.trim(), mine = ++searched;
  $('found-status').textContent = '';
  $('found').replaceChildren();
  if (!query) return;
  const answer = await attempt(() => fetched('/search', {query}));
  if (!answer || mine !== searched) return;
  $('found-status').textContent = answer.labels.length ? 'Enter adds the first.' : 'No label has this name.';
  $('found').replaceChildren(...answer.labels.map(found => {
    const item = make('li'), add = make('button', '', found.label);
    if (found.name !== found.label) add.append(make('span', 'words', ` (${found.name})`));
    add.type = 'button';
    add.setAttribute('aria-label', `Add ${found.label}`);
    add.addEventListener('click', () => {
      const known = shown.labels.find(one => one.label === found.label);
      decide(known || {label: found.label, score: null, words: [], note: ''}, 1);
      $('query').value = '';
      search();
      $('query').focus();
    });
    item.append(add);
    return item;
  }));
}

const moves = {
  n: () => shown && turn('/finish', {text: shown.text}),
  s: () => shown && turn('/finish', {text: shown.text, skip: true}),
  b: () => turn('/text', {back: true, ...(shown && {text: shown.text})}),
  a: () => shown.labels[current] && decide(shown.labels[current], 1).then(() => choose(current + 1, true)),
  r: () => shown.labels[current] && decide(shown.labels[current], -1).then(() => choose(current + 1, true)),
  '/': () => $('query').focus(),
  ArrowDown: () => choose($('labels').contains(document.activeElement) ? current + 1 : 0, true),
  ArrowUp: () => choose(current - 1, true),
};

document.addEventListener('keydown', event => {
  const writes = event.target.matches('input:not([type=checkbox])');
  if (event.key === 'Escape' && writes) return $('content').focus();
  if (writes || event.ctrlKey || event.altKey || event.metaKey || !$('keys').checked) return;
  const place = Number(event.key) - 1, label = shown && place >= 0 && shown.labels[place];
  if (!label && !(event.key in moves && (shown || event.key === 'b'))) return;
  event.preventDefault();
  if (label) decide(label, 1);
  else moves[event.key]();
});
$('form').addEventListener('submit', event => {
  event.preventDefault();
  const first = $('found').querySelector('button');
  if (first) first.click();
});
$('query').addEventListener('input', search);
$('done').addEventListener('click', moves.n);
$('skip').addEventListener('click', moves.s);
$('back').addEventListener('click', moves.b);
$('person').value = new URLSearchParams(location.search).get('as') || localStorage.getItem('person') || '';
$('person').addEventListener('change', () => {
  localStorage.setItem('person', $('person').value);
  turn('/text');
});
turn('/text');

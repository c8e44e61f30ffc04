// The page can be read without this script, which adds buttons to sort and a search box.
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
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
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

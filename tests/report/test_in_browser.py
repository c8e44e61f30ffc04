"""The page in Chromium: widths, dark, paper, sorting, searching, keyboard, contrast; without network and scripts."""

import base64

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.report.cases import inputs
from tests.serving.browser import page
from xmc_tf.audit import Audit, AuditData, Finding
from xmc_tf.data import Features
from xmc_tf.report import ReportInputs, write_report
from xmc_tf.report.audit_files import write_audit

pytestmark = [pytest.mark.usefixtures("chromium"), pytest.mark.full]

# Each element with a text of its own: its colour, the colour behind it, and what it is.
CONTRASTS = """
(() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const over = ([r, g, b, a = 1], back) => [r, g, b].map((one, i) => one * a + back[i] * (1 - a));
  const light = rgb => {
    const [r, g, b] = rgb.map(one => (one /= 255) <= .03928 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  function behind(element) {
    if (!element) return [255, 255, 255];
    const own = parse(getComputedStyle(element).backgroundColor);
    return own[3] === 0 ? behind(element.parentElement) : over(own, behind(element.parentElement));
  }
  const worst = {};
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.getClientRects().length) continue;
    const style = getComputedStyle(element), svg = element instanceof SVGElement;
    const back = behind(svg ? element.ownerSVGElement : element);
    const [a, b] = [light(over(parse(svg ? style.fill : style.color), back)), light(back)];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    const key = element.tagName + '.' + (element.getAttribute('class') || '');
    worst[key] = Math.min(worst[key] ?? 99, ratio);
  }
  return Object.entries(worst).filter(([, ratio]) => ratio < 4.5);
})()
"""
OVERFLOWING = """
[...document.querySelectorAll('body *')].filter(one => one.getClientRects().length && !one.closest('.scroll') &&
  !one.classList.contains('skip') && one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(one => one.tagName + '.' + one.className)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A report with all sections, whose matrix and tables are wide."""
    return write_report(inputs(45, settings={"long": "x" * 400}), tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def browser(path, tmp_path_factory):
    with page(tmp_path_factory.mktemp("profile")) as tab:
        tab.call("Network.enable")
        tab.open(path.as_uri())
        yield tab


@pytest.fixture
def tab(browser, path):
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    browser.call("Emulation.setEmulatedMedia", media="", features=[])
    show(browser, 1280)
    browser.open(path.as_uri())
    return browser


def show(tab, width, dark=False):
    tab.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    tab.call("Emulation.setEmulatedMedia", media="", features=scheme)


@pytest.mark.parametrize("width", [320, 800, 1920])
def test_nothing_overflows_and_wide_tables_scroll_in_their_box(tab, width):
    show(tab, width)
    assert tab.js("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert tab.js(OVERFLOWING) == []
    wide = tab.js(
        "[...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth)"
        ".every(one => getComputedStyle(one).overflowX === 'auto' && one.tabIndex === 0 && one.ariaLabel)"
    )
    assert wide


def test_a_table_that_is_too_wide_says_so_and_keeps_its_first_column(tab):
    show(tab, 390)
    box = "document.querySelector('.scroll:has(.thresholds)')"
    head = f"{box}.querySelector('tbody th')"
    tab.until(f"getComputedStyle({box}, '::before').content.includes('Scroll sideways')")  # set by an observer
    place = tab.js(f"{head}.getBoundingClientRect().left")
    tab.js(f"{box}.scrollLeft = 150")
    assert tab.js(f"[{box}.scrollLeft, {head}.getBoundingClientRect().left]") == [150, place]
    show(tab, 1920)
    tab.until(f"getComputedStyle({box}, '::before').content === 'none'")


def test_an_audit_breaks_no_word_on_a_desktop_and_fills_a_phone(tab, tmp_path):
    names, text = ["module: scipy.interpolate.fitpack_py", "3d-reconstruction-of-buildings"], "A text. " * 30
    data = AuditData(
        Features(csr_matrix((1, 1))), csr_matrix((1, 2)), score=None, texts=[text], names=names, documents=["line 1873"]
    )
    rows = [("missing", 0, 1, None), ("same labels", None, 0, 1), ("silent name", None, 0, None)]
    audit = Audit([Finding(kind, row, one, two, 0.9, 2.0, "its name: " * 20) for kind, row, one, two in rows], data)
    assert str(audit).startswith(
        "1 missing label, 0 wrong labels, 0 pairs of duplicates, 1 pair of same labels, 1 silent"
    )
    tab.open(write_audit(audit, tmp_path).as_uri())
    lines = "[...document.querySelectorAll('.findings thead button, .findings .label bdi')].map(one => {"
    lines += " const range = document.createRange(); range.selectNodeContents(one);"
    lines += " return [one.textContent, new Set([...range.getClientRects()].map(box => box.top)).size]; })"
    found = tab.js(lines)
    assert {head for head, _ in found} > {"document", "other label", *names}
    most = {names[0]: 3, names[1]: 2}  # broken at a space, a point or a hyphen only
    assert all(count <= most.get(cell, 1) for cell, count in found), found
    assert tab.js("document.body.innerText").count("1 missing label.") == 1
    show(tab, 390)  # where a finding is a paragraph, all of its parts are as wide as the page
    widths = tab.js("[...document.querySelectorAll('.findings tbody .label')].map(one => one.clientWidth)")
    assert min(widths) > 300, widths
    assert tab.js("getComputedStyle(document.querySelector('.findings tbody th')).boxShadow") == "none"


@pytest.mark.parametrize("dark", [False, True])
def test_all_texts_have_enough_contrast(tab, dark):
    show(tab, 1280, dark)
    ground = tab.js("getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).map(Number)")
    assert (sum(ground) < 200) == dark
    assert tab.js(CONTRASTS) == []


def first_column(tab):
    return tab.js("[...document.querySelectorAll('#label-table tbody tr')].map(row => row.cells[0].textContent)")


def numbers(tab, column):
    cells = f"[...document.querySelectorAll('#label-table tbody tr')].map(row => row.cells[{column}].textContent)"
    return [float(cell.replace(",", "")) if cell != "–" else -1 for cell in tab.js(cells)]


def test_columns_sort_by_mouse_and_keyboard(tab):
    head = "document.querySelectorAll('#label-table thead th')"
    tab.js(f"{head}[2].querySelector('button').click()")
    assert tab.js(f"{head}[2].ariaSort") == "descending"
    assert numbers(tab, 2) == sorted(numbers(tab, 2), reverse=True)
    tab.js(f"{head}[5].querySelector('button').focus()")
    tab.key("Enter")
    assert tab.js(f"[{head}[2].ariaSort, {head}[5].ariaSort]") == [None, "descending"]
    assert numbers(tab, 5) == sorted(numbers(tab, 5), reverse=True)
    tab.key(" ")
    assert tab.js(f"{head}[5].ariaSort") == "ascending"
    assert numbers(tab, 5) == sorted(numbers(tab, 5))
    tab.js(f"{head}[0].querySelector('button').click()")
    found = [name for name in first_column(tab) if name.startswith("label ")]
    assert found == sorted(found, key=lambda name: int(name.split()[1]))
    assert tab.js("document.activeElement.matches(':focus-visible')")
    assert tab.js("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_search_shows_the_rows_with_all_words(tab):
    tab.js("document.querySelector('#label-table-search').focus()")
    tab.write("LABEL 1")
    shown = "[...document.querySelectorAll('#label-table tbody tr')].filter(row => row.getClientRects().length)"
    found = tab.js(f"{shown}.map(row => row.cells[0].textContent)")
    assert found
    assert set(found) == {name for name in first_column(tab) if "label" in name and "1" in name}
    total = len(first_column(tab))
    assert tab.js("document.querySelector('.search [role=status]').textContent") == f"{len(found)} of {total} rows"
    assert ("searchbox", "Search") in tab.accessible()


def test_every_part_is_reached_by_keyboard_and_named(tab):
    tab.key("Tab")
    assert tab.js("document.activeElement.className") == "skip"
    assert tab.js("[...document.querySelectorAll('a, button, input, [tabindex]')].every(one => one.tabIndex >= 0)")
    links = tab.js("[...document.querySelectorAll('nav a')].map(one => one.hash)")
    assert len(links) >= 9
    assert all(tab.js(f"!!document.querySelector('{link}')") for link in links)
    names_of_charts = [name for role, name in tab.accessible() if role in ("image", "img")]
    assert all(names_of_charts)
    assert tab.js("document.querySelectorAll('svg').length") > 5


def test_paper_shows_everything(tab):
    tab.call("Emulation.setEmulatedMedia", media="print")
    assert tab.js("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert tab.js(
        "[...document.querySelectorAll('.scroll')].every(one => getComputedStyle(one).overflow === 'visible')"
    )
    assert "On paper, only the first 50 labels" in tab.js("document.body.innerText")
    pdf = base64.b64decode(tab.call("Page.printToPDF", preferCSSPageSize=True)["data"])
    assert pdf.startswith(b"%PDF")
    assert 4 <= pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") <= 40


def test_it_reads_without_scripts(tab, path):
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    tab.open(path.as_uri())
    assert tab.js("document.querySelectorAll('button, input').length") == 0
    assert len(first_column(tab)) == 45


def test_thousands_of_rows_stay_usable(tab, tmp_path):
    draw = np.random.default_rng(0)
    truth = csr_matrix((np.ones(9000), (np.arange(9000) % 3000, draw.integers(0, 2000, 9000))), (3000, 2000))
    given = ReportInputs("Many", truth, truth * 0.5)
    tab.open(write_report(given, tmp_path / "many").as_uri())
    tab.js("document.querySelectorAll('#label-table thead button')[1].click()")
    assert len(first_column(tab)) == 2000
    assert numbers(tab, 1) == sorted(numbers(tab, 1), reverse=True)

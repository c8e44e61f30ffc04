"""A report for the browser: one HTML file with its charts inside, without dependencies or network access."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from xmc_tf.common.files.atomic import atomic_file
from xmc_tf.metrics import svg
from xmc_tf.metrics.compare import Comparison, System
from xmc_tf.metrics.table import percent

_SHOWN_LABELS = 15
_ENOUGH_TRUTHS = 3  # F1 of rarer labels is random

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #888; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p.note { color: var(--soft); } .scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
td.best { font-weight: 700; }
svg { max-width: 100%; height: auto; } svg text { fill: currentColor; font: 12px system-ui, sans-serif; }
.columns { display: flex; flex-wrap: wrap; gap: 0 3rem; }
"""


REPORT_NAME = "index.html"


def write_report(folder: str | Path, comparison: Comparison, label_names: Sequence[str] | None = None) -> Path:
    """Write ``folder/index.html``.

    Args:
        folder: created if it does not exist; other files in it stay.
        comparison: computed with ``details=True``.
        label_names: the labels' names; adds the best and worst labels of every system.

    Returns:
        The path of the file.
    """
    k = comparison.ks[-1]
    parts = [
        "<h1>Evaluation of predictions</h1>",
        f"<p>{comparison.documents:,} documents, {comparison.labels:,} labels, "
        f"{comparison.labels_per_document:.2f} true labels per document. All figures in percent.</p>",
        _overall_table(comparison),
        "<h2>Precision at k</h2>",
        svg.curves(
            [(s.name, s.overall.ks, 100 * s.overall.values["P"]) for s in comparison.systems],
            x_title="k",
            y_title="P@k, %",
        ),
    ]
    if comparison.systems[0].buckets:
        names = [f"{b.bucket} ({b.labels:,} labels)" for b in comparison.systems[0].buckets]
        bars = [(s.name, [100 * b.at("R", k) for b in s.buckets]) for s in comparison.systems]
        parts += [
            "<h2>Frequent and rare labels</h2>",
            f"<p>R@{k}: the share of a document's labels of each group that are among the first {k}. "
            f"Groups are based on the frequency of a label in the {comparison.occurs_in} documents.</p>",
            svg.bars(names, bars, y_title=f"R@{k}, %"),
            _bucket_table(comparison),
        ]
    if label_names is not None:
        parts.append("<h2>Best and worst labels</h2>")
        parts += [_labels_of(system, comparison, label_names) for system in comparison.systems]
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Evaluation</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )
    path = Path(folder) / REPORT_NAME
    with atomic_file(path) as part:
        part.write_text(page, encoding="utf-8")
    return path


def _overall_table(comparison: Comparison) -> str:
    columns = [(name, k) for name in comparison.measures for k in comparison.ks]
    values = np.array([[s.overall.at(*column) for column in columns] for s in comparison.systems])
    header = ["system", *(f"{name}@{k}" for name, k in columns)]
    return _table(header, [s.name for s in comparison.systems], values)


def _bucket_table(comparison: Comparison) -> str:
    k = comparison.ks[-1]
    names, values = [], []
    for system in comparison.systems:
        for bucket in system.buckets:
            names.append(f"{system.name}: {bucket.bucket}")
            values.append([bucket.at(name, k) for name in comparison.measures])
    header = ["system: frequency of the labels", *(f"{name}@{k}" for name in comparison.measures)]
    return _table(header, names, np.array(values), mark_best=False)


def _table(header: Sequence[str], names: Sequence[str], values: np.ndarray, mark_best: bool = True) -> str:
    best = np.nanmax(np.where(np.isnan(values), -1, values), axis=0)
    rows = []
    for name, row in zip(names, values, strict=True):
        cells = [
            f'<td class="best">{percent(v)}</td>'
            if mark_best and len(names) > 1 and v == top
            else f"<td>{percent(v)}</td>"
            for v, top in zip(row, best, strict=True)
        ]
        rows.append(f"<tr><td>{escape(name)}</td>{''.join(cells)}</tr>")
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    return f'<div class="scroll"><table><tr>{head}</tr>\n{chr(10).join(rows)}\n</table></div>'


def _labels_of(system: System, comparison: Comparison, names: Sequence[str]) -> str:
    counts = system.counts
    if counts is None:
        raise ValueError("the comparison was computed without details")
    f1 = counts.f1
    often = np.flatnonzero(counts.true >= _ENOUGH_TRUTHS)
    # On ties labels with more true documents come first, because they are more informative.
    best = often[np.lexsort((-counts.true[often], -f1[often]))][:_SHOWN_LABELS]
    worst = often[np.lexsort((-counts.true[often], f1[often]))][:_SHOWN_LABELS]
    k = comparison.ks[-1]

    def table(title: str, labels: np.ndarray) -> str:
        rows = "\n".join(
            f"<tr><td>{escape(names[i])}</td><td>{percent(f1[i])}</td><td>{counts.found[i]:,}</td>"
            f"<td>{counts.true[i]:,}</td><td>{counts.predicted[i]:,}</td></tr>"
            for i in labels
        )
        head = f"<th>{title}</th><th>F1@{k}</th><th>found</th><th>true</th><th>predicted</th>"
        return f'<div class="scroll"><table><tr>{head}</tr>\n{rows}\n</table></div>'

    if len(often) == 0:
        tables = f'<p class="note">No label is true in {_ENOUGH_TRUTHS} documents or more.</p>'
    else:
        tables = f'<div class="columns">{table("best", best)}{table("worst", worst)}</div>'
    return f"<h3>{escape(system.name)}</h3>\n{tables}"

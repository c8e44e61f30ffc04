"""The table of labels, confused labels, and labels without training documents."""

import numpy as np

from xmc_tf.report.page.elements import (
    Cell,
    Column,
    Html,
    count,
    paragraph,
    percent,
    section,
    share,
    table,
    text,
    words,
)
from xmc_tf.report.report import Report

LABELS_FILE, CONFUSIONS_FILE = "labels.csv", "confusions.csv"
_MATRIX_NAME = 28


def labels(report: Report) -> Html:
    found = report.labels
    precision, recall, f1 = found.precision, found.recall, found.f1
    with_training = found.training is not None
    columns = [
        Column("label", "text"),
        *([Column("training documents")] if with_training else []),
        Column("test documents"), Column("assigned"), Column("right"), Column("P"), Column("R"), Column("F1"),
    ]  # fmt: skip
    rows = [
        [
            words(report.inputs.label_name(int(label))),
            *([count(found.training[label])] if found.training is not None else []),
            count(found.true[label]), count(found.assigned[label]), count(found.right[label]),
            share(precision[label]), share(recall[label]), share(f1[label]),
        ]
        for label in found.shown
    ]  # fmt: skip
    total, shown = len(found.true), len(found.shown)
    rest = (
        f"The table shows {shown:,} of {total:,} labels, those of most test documents. The file {LABELS_FILE} beside "
        "this page has all of them."
        if shown < total
        else f"The table shows all {total:,} labels; they are also in the file {LABELS_FILE} beside this page."
    )
    paper = paragraph(f"On paper, only the first 50 labels are shown. {LABELS_FILE} has all of them.", "note on-paper")
    return section(
        "labels", "All labels", paragraph(f"For this table, {report.decisions.rule}. {rest}", "note"),
        table("Labels by test documents; P, R and F1 in percent", columns, rows, style="sortable", tall="label-table"),
        paper,
    )  # fmt: skip


def confusion(report: Report) -> Html:
    found = report.confusion
    if not found.pairs:
        return ""
    name_of = report.inputs.label_name
    columns = [
        Column("true label, not assigned", "text"),
        Column("assigned label, not true", "text"),
        Column("documents"),
    ]
    rows = [[words(name_of(pair.true)), words(name_of(pair.assigned)), count(pair.documents)] for pair in found.pairs]
    about = (
        f"Labels that documents get while another one, which is true, is missing: {report.decisions.rule}. "
        f"Counted in {found.documents:,} documents."
    )
    return section(
        "confusion", "Confused labels", paragraph(about, "note"), _matrix(report),
        "<h3>The most frequent confusions</h3>",
        table("Pairs of labels", columns, rows[:_shown_pairs(report)], style="pairs"),
        paragraph(f"The file {CONFUSIONS_FILE} has {len(rows):,} pairs.", "note"),
    )  # fmt: skip


def _shown_pairs(report: Report) -> int:
    return min(len(report.confusion.pairs), 20)


def _matrix(report: Report) -> Html:
    found = report.confusion
    if not found.kind:
        return ""
    totals = np.maximum(found.matrix.sum(axis=1), 1)
    columns = [Column("", "text"), *(Column(str(place + 1)) for place in range(len(found.names)))]
    rows = []
    for place, label in enumerate(found.names):
        cells = [
            _heat(int(number), number / totals[place], place == other)
            for other, number in enumerate(found.matrix[place])
        ]
        rows.append([Cell(f"{place + 1} <bdi>{text(label, _MATRIX_NAME)}</bdi>", kind="text"), *cells])
    about = (
        "Rows are true labels, columns are assigned labels in the same order. The diagonal counts right labels."
        if found.kind == "labels"
        else "There are too many labels for a matrix, so it shows clusters of the label tree. Rows are the clusters of "
        "true labels, columns those of assigned labels in the same order. The diagonal counts right labels, or those "
        "confused with one of the same cluster. A cluster is named after its most frequent labels."
    )
    title = "Confusion matrix" if found.kind == "labels" else "Confusion of clusters"
    return f"<h3>{title}</h3>" + paragraph(about, "note") + table(title, columns, rows, style="matrix")


def _heat(number: int, part: float, own: bool) -> Cell:
    """Return a cell whose background is darker for larger shares of the row."""
    if not number:
        return Cell("", 0.0, style="own" if own else "")
    return Cell(f"{number:,}", float(number), style="own" if own else "", shade=0.1 + 0.9 * part)


def coverage(report: Report) -> Html:
    found = report.coverage
    if found is None:
        return ""
    columns = [Column("", "text"), Column("all"), Column("without training documents"), Column("share, %")]
    rows = [
        [Cell("labels of test documents", kind="text"), count(found.labels), count(found.unseen_labels),
         Cell(percent(found.share_of_labels))],
        [Cell("true labels of all test documents", kind="text"), count(found.pairs), count(found.unseen_pairs),
         Cell(percent(found.share_of_pairs))],
    ]  # fmt: skip
    about = "A label can only be predicted if it has a training document. No model can find the others"
    more = f"; {found.unseen_documents:,} test documents have only such labels." if found.unseen_documents else "."
    return section(
        "coverage", "Labels without training documents", paragraph(about + more),
        table("Coverage of the test labels", columns, rows, style="coverage"),
    )  # fmt: skip

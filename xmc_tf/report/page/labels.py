"""The tables about labels, and examples: label table, confused labels, unseen labels, and highlighted texts."""

from collections.abc import Mapping
from textwrap import shorten

import numpy as np
from markupsafe import Markup, escape

from xmc_tf.features.characters import spans_of_words
from xmc_tf.report.page.elements import Cell, Table, clean, count, share, words
from xmc_tf.report.report import Report
from xmc_tf.report.sections import examples
from xmc_tf.report.sections.examples import TEXT_LENGTH, Example, ExampleLabel

KINDS, deciding_words = examples.KINDS, examples.deciding_words
LABELS_FILE, CONFUSIONS_FILE = "labels.csv", "confusions.csv"
_MATRIX_NAME = 60  # characters
_START = 90
_LEAST = 0.1  # share of the strongest word below which a word is not highlighted


def label_table(report: Report) -> Table:
    found = report.labels
    precision, recall, f1 = found.precision, found.recall, found.f1
    training = [] if found.training is None else ["training documents"]
    columns = ["label", *training, "test documents", "assigned", "right", "P", "R", "F1"]
    rows = [
        [
            words(report.inputs.label_name(int(label))),
            *([] if found.training is None else [count(found.training[label])]),
            count(found.true[label]), count(found.assigned[label]), count(found.right[label]),
            share(precision[label]), share(recall[label]), share(f1[label]),
        ]
        for label in found.shown
    ]  # fmt: skip
    caption = "Labels by test documents; P, R and F1 in percent"
    return Table(caption, columns, rows, style="sortable", identifier="label-table")


def confused_pairs(report: Report) -> Table:
    name_of = report.inputs.label_name
    columns = ["true label, not assigned", "assigned label, not true", "documents"]
    rows = [
        [words(name_of(pair.true)), words(name_of(pair.assigned)), count(pair.documents)]
        for pair in report.confusion.pairs[:20]
    ]
    return Table("Pairs of labels", columns, rows, style="pairs")


def confusion_matrix(report: Report) -> Table:
    found = report.confusion
    totals = np.maximum(found.matrix.sum(axis=1), 1)
    columns = ["", *(str(place + 1) for place in range(len(found.names)))]
    rows = []
    for place, label in enumerate(found.names):
        # The background is darker for larger shares of the row.
        cells = [
            Cell(f"{number:,}" if number else "", float(number), style="own" if place == other else "",
                 shade=0.1 + 0.9 * (number / totals[place]) if number else None)
            for other, number in enumerate(found.matrix[place].tolist())
        ]  # fmt: skip
        of_row = Markup(f"{place + 1} <bdi>{escape(clean(label, _MATRIX_NAME))}</bdi>")
        rows.append([Cell(of_row, kind="text"), *cells])
    title = "Confusion matrix" if found.kind == "labels" else "Confusion of clusters"
    return Table(title, columns, rows, style="matrix")


def coverage(report: Report) -> Table:
    found = report.coverage
    assert found is not None
    columns = ["", "all", "without training documents", "share, %"]
    rows = [
        [Cell(title, kind="text"), count(size), count(unseen), share(unseen / max(size, 1))]
        for title, size, unseen in (
            ("labels of test documents", found.labels, found.unseen_labels),
            ("true labels of all test documents", found.pairs, found.unseen_pairs),
        )
    ]
    return Table("Coverage of the test labels", columns, rows, style="coverage")


def beginning(example: Example) -> str:
    return shorten(" ".join(example.text.split()), _START, placeholder="…")


def mark_of(label: ExampleLabel) -> tuple[str, str, str]:
    """Return the CSS class, the mark, and the mark in words of a label."""
    if label.true:
        return ("right", "✓", "right") if label.assigned else ("missed", "○", "missed")
    return ("wrong", "✗", "wrong") if label.assigned else ("quiet", "", "not assigned")


def pieces(example: Example) -> list[tuple[str, float]]:
    return highlighted(example.text, {} if example.explained is None else example.explained.words, TEXT_LENGTH + 1)


def highlighted(text: str, amounts: Mapping[str, float], most: int) -> list[tuple[str, float]]:
    """Return the pieces of a text, each with the strength of its background: the contribution to the score, up to 1."""
    shown = clean(text, most)
    # If the model splits scripts without spaces, no word of a feature can be split further.
    splits = all(len(spans_of_words(feature, True)) == len(spans_of_words(feature)) for feature in amounts)
    spans = spans_of_words(shown, splits)
    strengths = _strengths([shown[start:stop] for start, stop in spans], amounts)
    highest = max(strengths, default=0.0)
    parts, at = list[tuple[str, float]](), 0
    for (start, stop), strength in zip(spans, strengths, strict=True):
        if highest > 0 and strength >= _LEAST * highest:
            parts += [(shown[at:start], 0.0), (shown[start:stop], strength / highest)]
            at = stop
    return [part for part in [*parts, (shown[at:], 0.0)] if part[0]]


def _strengths(words: list[str], amounts: Mapping[str, float]) -> list[float]:
    """Return the contribution of each word. The contribution of an n-gram is divided among its words."""
    longest = max((feature.count(" ") + 1 for feature in amounts), default=0)
    strengths = [0.0] * len(words)
    for length in range(1, longest + 1):
        for first in range(len(words) - length + 1):
            feature = " ".join(words[first : first + length])
            amount = amounts.get(feature, amounts.get(feature.lower(), 0.0))  # most models read lower case
            for place in range(first, first + length):
                strengths[place] += amount / length
    return strengths

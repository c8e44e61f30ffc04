"""The page's sections about labels and documents: label table, confused labels, unseen labels, and examples."""

from collections.abc import Mapping
from html import escape
from textwrap import shorten

import numpy as np

from xmc_tf.features.characters import spans_of_words
from xmc_tf.report.page.elements import Cell, Html, clean, count, name, paragraph, section, share, table, text, words
from xmc_tf.report.report import Report
from xmc_tf.report.sections.examples import KINDS, TEXT_LENGTH, Example, ExampleLabel, deciding_words

LABELS_FILE, CONFUSIONS_FILE = "labels.csv", "confusions.csv"
_MATRIX_NAME = 60  # characters
_SHOWN_WORDS, _START = 8, 90
_LEAST = 0.1  # share of the strongest word below which a word is not highlighted


def labels(report: Report) -> Html:
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
    total, shown = len(found.true), len(found.shown)
    rest = (
        f"The table shows {shown:,} of {total:,} labels, those of most test documents. The file {LABELS_FILE} beside "
        "this page has all of them."
        if shown < total
        else f"The table shows all {total:,} labels; they are also in the file {LABELS_FILE} beside this page."
    )
    return section(
        "labels", "All labels", paragraph(f"For this table, {report.decisions.rule}. {rest}", "note"),
        table("Labels by test documents; P, R and F1 in percent", columns, rows, style="sortable", tall="label-table"),
        paragraph(f"On paper, only the first 50 labels are shown. {LABELS_FILE} has all of them.", "note on-paper"),
    )  # fmt: skip


def confusion(report: Report) -> Html:
    found = report.confusion
    if not found.pairs:
        return ""
    name_of = report.inputs.label_name
    columns = ["true label, not assigned", "assigned label, not true", "documents"]
    rows = [[words(name_of(pair.true)), words(name_of(pair.assigned)), count(pair.documents)] for pair in found.pairs]
    about = (
        f"Wrong labels that documents get while a true one is missing: {report.decisions.rule}. Counted in "
        f"{found.documents:,} documents."
    )
    return section(
        "confusion", "Confused labels", paragraph(about, "note"), _matrix(report),
        "<h3>The most frequent confusions</h3>",
        table("Pairs of labels", columns, rows[:20], style="pairs"),
        paragraph(f"The file {CONFUSIONS_FILE} has {len(rows):,} pairs.", "note"),
    )  # fmt: skip


def _matrix(report: Report) -> Html:
    found = report.confusion
    if not found.kind:
        return ""
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


def coverage(report: Report) -> Html:
    found = report.coverage
    if found is None:
        return ""
    columns = ["", "all", "without training documents", "share, %"]
    rows = [
        [Cell(title, kind="text"), count(size), count(unseen), share(unseen / max(size, 1))]
        for title, size, unseen in (
            ("labels of test documents", found.labels, found.unseen_labels),
            ("true labels of all test documents", found.pairs, found.unseen_pairs),
        )
    ]
    about = "A label can only be predicted if it has a training document. No model can find the others"
    more = f"; {found.unseen_documents:,} test documents have only such labels." if found.unseen_documents else "."
    return section(
        "coverage", "Labels without training documents", paragraph(about + more),
        table("Coverage of the test labels", columns, rows, style="coverage"),
    )  # fmt: skip


def examples(report: Report) -> Html:
    if not report.examples:
        return ""
    about = (
        f"For these examples, {report.decisions.rule}. ✓ marks labels that are true, ✗ labels that are not, and ○ true "
        "labels that the document does not get. The number is the score."
    )
    if any(one.explained for one in report.examples):
        about += " Words that raised the scores of the explained label and of the clusters above it are highlighted."
    parts = [paragraph(about, "note")]
    for kind, title in KINDS.items():
        chosen = [one for one in report.examples if one.kind == kind]
        if chosen:
            parts += [f"<h3>{title}</h3>", *(_example(report, one, is_first=one is chosen[0]) for one in chosen)]
    return section("examples", "Examples", *parts)


def _example(report: Report, example: Example, *, is_first: bool) -> Html:
    items = "".join(_label(report, one) for one in example.labels)
    called = report.inputs.document_name(example.document)
    start = shorten(" ".join(example.text.split()), _START, placeholder="…")
    cut = f' <span class="quiet">({example.cut:,} more characters)</span>' if example.cut else ""
    amounts = {} if example.explained is None else example.explained.words
    body = highlighted(example.text, amounts, TEXT_LENGTH + 1) or '<span class="quiet">(empty text)</span>'
    return (
        f'<details class="example"{" open" if is_first else ""}>\n'
        f'<summary><b>{name(called)}</b> <span class="quiet">{name(start)}</span></summary>\n'
        f'<p class="document"><bdi>{body}</bdi>{cut}</p>\n<ul class="labels">{items}</ul>{_why(example)}</details>'
    )


def _why(example: Example) -> Html:
    """Return the deciding words of the explained label, and the path through the tree to it."""
    label = example.explained
    if label is None:
        return ""
    paths: list[Html] = []
    best, embedding = deciding_words(label, _SHOWN_WORDS)
    deciding = [f"{name(word)} {_signed(amount)}" for word, amount in best]
    deciding += [f"the embedding {_signed(embedding)}"] if embedding else []
    words_of = ", ".join(deciding) or "none"
    parts = [f'<p class="why">Why “{name(label.name)}”? Words of this text, weight × value: {words_of}</p>']
    if label.sum:
        parts.append(f'<p class="why">Score: {text(label.sum, 400)}.</p>')
    for source in label.evidence:
        if not source.path:
            note = f" ({text(source.note)})" if source.note else ""
            parts.append(f'<p class="why">{text(source.source).capitalize()}: {source.score:.4f}{note}</p>')
            continue
        steps = [
            f"<li>cluster {node.node + 1:,} of {node.of:,} <b>{node.score:.4f}</b>"
            f' <span class="quiet">{node.labels:,} labels: {name(node.name)}</span></li>'
            for node in source.path[:-1]
        ]
        last = source.path[-1]
        steps.append(f"<li>{name(last.name)} <b>{last.score:.4f}</b></li>")
        title = text(source.source).capitalize()
        paths.append(f'<p class="why">{title}, from the top, with the score of each node:</p>')
        paths.append(f'<ol class="path">{"".join(steps)}</ol>')
    if paths:
        about = "How the label was found in the tree" + ("s" if len(paths) > 2 else "")
        parts.append(f'<details class="why"><summary>{about}</summary>{"".join(paths)}</details>')
    return "".join(parts)


def _signed(amount: float) -> Html:
    return f'<span class="quiet">{"+" if amount >= 0 else "−"}{abs(amount):.2f}</span>'


def _label(report: Report, label: ExampleLabel) -> Html:
    style, mark, spoken = (
        ("right", "✓", "right") if label.true and label.assigned
        else ("missed", "○", "missed") if label.true
        else ("wrong", "✗", "wrong") if label.assigned
        else ("quiet", "", "not assigned")
    )  # fmt: skip
    score = "" if label.score is None else f' <span class="quiet">{label.score:.2f}</span>'
    sign = f'<span class="mark" role="img" aria-label="{spoken}">{mark}</span>' if mark else ""
    return f'<li class="{style}">{sign}{name(report.inputs.label_name(label.label))}{score}</li>'


def highlighted(text: str, amounts: Mapping[str, float], most: int) -> Html:
    """Return a text as HTML, in which words that contributed more to the score have a stronger background."""
    shown = clean(text, most)
    # If the model splits scripts without spaces, no word of a feature can be split further.
    splits = all(len(spans_of_words(feature, True)) == len(spans_of_words(feature)) for feature in amounts)
    spans = spans_of_words(shown, splits)
    strengths = _strengths([shown[start:stop] for start, stop in spans], amounts)
    highest = max(strengths, default=0.0)
    parts, at = [], 0
    for (start, stop), strength in zip(spans, strengths, strict=True):
        if highest <= 0 or strength < _LEAST * highest:
            continue
        parts.append(escape(shown[at:start]))
        parts.append(f'<mark style="--part:{strength / highest:.2f}">{escape(shown[start:stop])}</mark>')
        at = stop
    return "".join([*parts, escape(shown[at:])])


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

"""The examples: documents with their labels, the deciding words, and the path through the tree."""

from collections.abc import Mapping
from html import escape
from textwrap import shorten

from xmc_tf.features.characters import spans_of_words
from xmc_tf.models.explaining.explanation import LabelExplanation
from xmc_tf.report.page.elements import Html, clean, name, paragraph, section, text
from xmc_tf.report.report import Report
from xmc_tf.report.sections.examples import KINDS, TEXT_LENGTH, Example, ExampleLabel

_SHOWN_WORDS, _START = 8, 90
_LEAST = 0.1  # share of the strongest word below which a word is not highlighted
_CALIBRATION = " The calibration turns the scores into probabilities; it was learned on documents that were held out."


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
    return (
        f'<details class="example"{" open" if is_first else ""}>\n'
        f'<summary><b>{name(called)}</b> <span class="quiet">{name(start)}</span></summary>\n'
        f'<p class="document">{_document(example)}</p>\n<ul class="labels">{items}</ul>{_why(example)}</details>'
    )


def _why(example: Example) -> Html:
    """Return the deciding words of a label, and the path through the tree to it."""
    label = example.explained
    if label is None:
        return ""
    paths: list[Html] = []
    parts = [f'<p class="why">Why “{name(label.name)}”? Words of this text, weight × value: {_words(label)}</p>']
    if label.sum:
        about = _CALIBRATION if any(one.source == "calibration" for one in label.shares) else ""
        parts.append(f'<p class="why">Score: {text(label.sum, 400)}.{about}</p>')
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


def _words(label: LabelExplanation) -> Html:
    """Return the words with the largest contributions to the label itself, and the embedding's contribution."""
    nodes = [source.path[-1] for source in label.evidence if source.path]
    total: dict[str, float] = {}
    for node in nodes:
        for one in node.contributions:
            total[one.feature] = total.get(one.feature, 0.0) + one.amount / len(nodes)
    shown = sorted(total.items(), key=lambda pair: -abs(pair[1]))[:_SHOWN_WORDS]
    parts = [f"{name(word)} {_signed(amount)}" for word, amount in shown]
    if embedding := sum(node.embedding for node in nodes) / max(len(nodes), 1):
        parts.append(f"the embedding {_signed(embedding)}")
    return ", ".join(parts) or "none"


def _signed(amount: float) -> Html:
    return f'<span class="quiet">{"+" if amount >= 0 else "−"}{abs(amount):.2f}</span>'


def _document(example: Example) -> Html:
    cut = f' <span class="quiet">({example.cut:,} more characters)</span>' if example.cut else ""
    amounts = {} if example.explained is None else example.explained.words
    body = highlighted(example.text, amounts, TEXT_LENGTH + 1) or '<span class="quiet">(empty text)</span>'
    return f"<bdi>{body}</bdi>{cut}"


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
    """Return a text with a stronger background for words that contributed more to the score, alone or in n-grams."""
    shown = clean(text, most)
    spans = spans_of_words(shown)
    strengths = _strengths([shown[start:stop].lower() for start, stop in spans], amounts)
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
    """Return the contribution of each word; that of an n-gram is divided among its words."""
    longest = max((feature.count(" ") + 1 for feature in amounts), default=0)
    strengths = [0.0] * len(words)
    for length in range(1, longest + 1):
        for first in range(len(words) - length + 1):
            amount = amounts.get(" ".join(words[first : first + length]), 0.0)
            for place in range(first, first + length):
                strengths[place] += amount / length
    return strengths

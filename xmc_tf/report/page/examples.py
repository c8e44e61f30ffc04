"""The section of examples: documents with their labels, the deciding words, and the path through the tree."""

from xmc_tf.report.page.elements import Html, name, paragraph, section, text
from xmc_tf.report.report import Report
from xmc_tf.report.sections.examples import KINDS, TEXT_LENGTH, Example, ExampleLabel


def examples(report: Report) -> Html:
    """Return the section of examples."""
    if not report.examples:
        return ""
    about = (
        f"For these examples, {report.decisions.rule}. ✓ marks labels that are true, ✗ labels that are not, and ○ true "
        "labels that the document does not get. The number is the score."
    )
    parts = [paragraph(about, "note")]
    for kind, title in KINDS.items():
        chosen = [one for one in report.examples if one.kind == kind]
        if chosen:
            parts += [f"<h3>{title}</h3>", *(_example(report, one) for one in chosen)]
    return section("examples", "Examples", *parts)


def _example(report: Report, example: Example) -> Html:
    items = "".join(_label(report, one) for one in example.labels)
    return (
        f'<article class="example"><h4>Document {example.document + 1:,}</h4>\n'
        f'<p class="document">{_document(example)}</p>\n<ul class="labels">{items}</ul></article>'
    )


def _document(example: Example) -> Html:
    cut = f' <span class="quiet">({example.cut:,} more characters)</span>' if example.cut else ""
    body = text(example.text, TEXT_LENGTH + 1) or '<span class="quiet">(empty text)</span>'
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

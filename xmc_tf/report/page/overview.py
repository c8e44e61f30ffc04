"""The summary, and all metrics."""

import math

from xmc_tf.metrics.compare import MeasuredSystem
from xmc_tf.metrics.measures import Measures
from xmc_tf.report.page.charts import Axis, Line, axis_to, bar_chart, line_chart
from xmc_tf.report.page.elements import (
    Cell,
    Column,
    Html,
    count,
    figure,
    paragraph,
    percent,
    section,
    share,
    side_by_side,
    table,
    text,
    words,
)
from xmc_tf.report.report import Report
from xmc_tf.report.sections.summary import sentences

_ABOUT = {
    "P": "precision: share of the first k labels that are true",
    "R": "recall: share of a document's true labels that are among the first k",
    "nDCG": "discounted cumulative gain: hits at the first ranks count more",
    "PSP": "propensity-scored precision: rare labels count more",
    "PSnDCG": "propensity-scored nDCG: rare labels count more",
    "micro-F1": "F1 of the first k, over all pairs of document and label",
    "macro-F1": "mean of the F1 of all labels that a document has",
    "P-near": "precision that also counts labels that are directly broader or narrower than a true label",
    "P-sibling": "precision that also counts labels that share a broader term with a true label",
}
_MEANING = {
    "P@k": "the share of the first k labels that are true",
    "R@k": "the share of a document's true labels that are among the first k",
    "nDCG@k": "counts hits at the first ranks more",
    "PSP@k and PSnDCG@k": "count rare labels more",
    "F1@k": "combines precision and recall of the first k labels",
}
_NEAR = {
    "P-near@k": "the share of the first k labels that are true, or directly broader or narrower than a true label",
    "P-sibling@k": "also counts labels that share a broader term with a true label",
}


def overview(report: Report) -> Html:
    items = "".join(f"<li>{text(sentence, 1000)}</li>" for sentence in sentences(report))
    return section("summary", "Summary", _tiles(report), f'<ul class="summary">{items}</ul>')


def metrics(report: Report) -> Html:
    comparison = report.comparison
    meanings = _MEANING | (_NEAR if "P-near" in comparison.measures else {})
    meaning = "; ".join(f"{short}: {about}" for short, about in meanings.items())
    k = comparison.ks[-1]
    many = len(comparison.systems) > 1
    title = "Metrics and comparison" if many else "Metrics"
    lines = [_line(s, "P") for s in comparison.systems]
    recall = [_line(s, "R") for s in comparison.systems]
    ranks = Axis("k", 0.5, k + 0.5, tuple(range(1, k + 1, max(1, k // 10))))
    charts = side_by_side(
        figure(line_chart(lines, ranks, Axis("P@k, %", 0, 100), "Precision by number of labels"), "Precision at k"),
        figure(line_chart(recall, ranks, Axis("R@k, %", 0, 100), "Recall by number of labels"), "Recall at k"),
    )
    return section(
        "metrics", title, paragraph(f"All figures in percent. {meaning}.", "note"), _overall(report), charts,
        _frequency(report),
    )  # fmt: skip


def _tiles(report: Report) -> Html:
    overall, k = report.system.overall, report.comparison.ks[-1]
    if report.single_label:
        found = [("accuracy", percent(overall.at("P", 1))), ("macro F1", percent(overall.at("macro-F1", 1)))]
    else:
        found = [("P@1", percent(overall.at("P", 1)))]
        if k > 1:
            found += [(f"P@{k}", percent(overall.at("P", k))), (f"R@{k}", percent(overall.at("R", k)))]
        if report.thresholds.best:
            found.append(("best F1", percent(report.thresholds.best.f1)))
    found = [(title, value if value == "–" else f"{value} %") for title, value in found]
    return '<dl class="tiles">' + "".join(f"<div><dt>{a}</dt><dd>{b}</dd></div>" for a, b in found) + "</dl>"


def _overall(report: Report) -> Html:
    """Return a table with one row per metric and prediction, and one column per k."""
    comparison = report.comparison
    many = len(comparison.systems) > 1
    rows = []
    for measure in comparison.measures:
        best = [max(_known(s.overall.at(measure, k)) for s in comparison.systems) for k in comparison.ks]
        for system in comparison.systems:
            values = [system.overall.at(measure, k) for k in comparison.ks]
            cells = [
                Cell(percent(value), style="best" if many and _known(value) == top else "")
                for value, top in zip(values, best, strict=True)
            ]
            rows.append([Cell(measure, kind="text"), *([words(system.name)] if many else []), *cells])
    columns = [Column("metric", "text"), *([Column("prediction", "text")] if many else [])]
    columns += [Column(f"@{k}") for k in comparison.ks]
    caption = "All documents and labels; best values are bold" if many else "All documents and labels"
    return table(caption, columns, rows, style="metrics")


def _frequency(report: Report) -> Html:
    comparison, k = report.comparison, report.comparison.ks[-1]
    first = report.system.buckets
    if not first:
        return ""
    many = len(comparison.systems) > 1
    rows = []
    for number, bucket in enumerate(first):
        for system in comparison.systems:
            rows.append([
                Cell(bucket.bucket, kind="text"), *([words(system.name)] if many else []), count(bucket.labels),
                *(share(system.buckets[number].at(measure, k)) for measure in comparison.measures),
            ])  # fmt: skip
    columns = [
        Column(f"{comparison.occurs_in} documents", "text"), *([Column("prediction", "text")] if many else []),
        Column("labels"), *(Column(f"{measure}@{k}", about=_ABOUT[measure]) for measure in comparison.measures),
    ]  # fmt: skip
    values = [(s.name, [_percents(b, k) for b in s.buckets]) for s in comparison.systems]
    highest = axis_to([value for _, row in values for value in row], f"R@{k}, %")
    names = [f"{bucket.bucket}" for bucket in first]
    chart = bar_chart(
        names, values, highest, f"{comparison.occurs_in} documents of the label", f"Recall at {k} by label frequency"
    )
    about = (
        f"Labels are grouped by their number of {comparison.occurs_in} documents. R@{k} of a group is the share of its "
        f"true labels that are among the first {k}; P@{k} of the groups adds up to the total."
    )
    return (
        "<h3>Frequent and rare labels</h3>"
        + paragraph(about, "note")
        + table("Metrics by label frequency", columns, rows, style="frequency")
        + side_by_side(figure(chart, f"Recall at {k} by label frequency"))
    )


def _line(system: MeasuredSystem, measure: str) -> Line:
    return Line(system.name, system.overall.ks, (100 * system.overall.values[measure]).tolist(), dots=True)


def _percents(measures: Measures, k: int) -> float:
    return 100 * measures.at("R", k)


def _known(value: float) -> float:
    return -1.0 if math.isnan(value) else value

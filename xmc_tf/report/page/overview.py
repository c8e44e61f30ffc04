"""The page's sections about the whole prediction: summary, metrics, thresholds, calibration, curves, and settings."""

import math
from collections.abc import Sequence

from xmc_tf.report.inputs import Curve
from xmc_tf.report.page.charts import Axis, Line, axis_around, axis_to, bar_chart, line_chart, side_by_side
from xmc_tf.report.page.elements import Cell, Html, count, paragraph, percent, section, share, table, text, words
from xmc_tf.report.report import Report
from xmc_tf.report.sections.scores import Point
from xmc_tf.report.sections.summary import sentences

_ABOUT = {
    "P": "precision, the share of the first k labels that are true",
    "R": "recall, the share of a document's true labels that are among the first k",
    "nDCG": "discounted cumulative gain, in which hits at the first ranks count more",
    "PSP": "propensity-scored precision, in which rare labels count more",
    "PSnDCG": "propensity-scored nDCG, in which rare labels count more",
    "micro-F1": "F1 of the first k labels, over all pairs of document and label",
    "macro-F1": "mean F1 of all labels that a document has",
    "P-near": "precision that also counts labels that are directly broader or narrower than a true label",
    "P-sibling": "precision that also counts labels that share a broader term with a true label",
}
_SMALL = 0.1  # a best threshold below which the axis is logarithmic
_BELOW_BEST = 0.1  # lowest threshold of that axis, as a share of the best one
_TICKS = tuple(digit * 10.0**power for power in range(-9, 1) for digit in (1, 3))
_MOST_CHARTS = 12
_CURVE_POINTS = 400


def overview(report: Report) -> Html:
    items = "".join(f"<li>{text(sentence, 1000)}</li>" for sentence in sentences(report))
    return section("summary", "Summary", _tiles(report), f'<ul class="summary">{items}</ul>')


def metrics(report: Report) -> Html:
    comparison, k = report.comparison, report.comparison.ks[-1]
    meaning = "; ".join(f"{measure}@k: {_ABOUT[measure]}" for measure in comparison.measures)
    ranks = Axis("k", 0.5, k + 0.5, tuple(range(1, k + 1, max(1, k // 10))))
    charts = []
    for measure, name in (("P", "Precision"), ("R", "Recall")):
        lines = [
            Line(one.name, one.overall.ks, (100 * one.overall.values[measure]).tolist(), dots=True)
            for one in comparison.systems
        ]
        axis, about = Axis(f"{measure}@k, %", 0, 100), f"{name} by number of labels"
        charts.append(line_chart(lines, ranks, axis, about, f"{name} at k"))
    return section(
        "metrics", "Metrics and comparison" if len(comparison.systems) > 1 else "Metrics",
        paragraph(f"All figures in percent. {meaning}.", "note"), _overall(report), side_by_side(*charts),
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
    """Return a table of metrics, with one row per metric and prediction and one column per k."""
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
    columns = ["metric", *(["prediction"] if many else []), *(f"@{k}" for k in comparison.ks)]
    caption = "All documents and labels" + ("; best values are bold" if many else "")
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
    hints = {f"{measure}@{k}": _ABOUT[measure] for measure in comparison.measures}
    columns = [f"{comparison.occurs_in} documents", *(["prediction"] if many else []), "labels", *hints]
    values = [(s.name, [100 * bucket.at("R", k) for bucket in s.buckets]) for s in comparison.systems]
    highest = axis_to([value for _, row in values for value in row], f"R@{k}, %")
    about = f"Recall at {k} by label frequency"
    names = [bucket.bucket for bucket in first]
    chart = bar_chart(names, values, highest, f"{comparison.occurs_in} documents of the label", about)
    about = (
        f"Labels are grouped by their number of {comparison.occurs_in} documents. R@{k} of a group is the share of its "
        f"true labels that are among the first {k}; P@{k} of the groups adds up to the total."
    )
    return (
        "<h3>Frequent and rare labels</h3>"
        + paragraph(about, "note")
        + table("Metrics by label frequency", columns, rows, style="frequency", about=hints)
        + side_by_side(chart)
    )


def _known(value: float) -> float:
    return -1.0 if math.isnan(value) else value


def thresholds(report: Report) -> Html:
    found = report.thresholds
    if found.best is None or found.lowest is None:
        return ""
    goals: list[tuple[str, Point | None]] = [("best F1", found.best)]
    goals += [(f"precision {target:.0%}", point) for target, point in found.for_precision]
    goals.append(("everything predicted", found.lowest))
    # All thresholds have as many decimals as the smallest one needs.
    least = min((abs(point.threshold) for _, point in goals if point and point.threshold), default=1.0)
    decimals = min(max(2 - math.floor(math.log10(least)), 2), 8)
    rows = [_row(goal, point, decimals) for goal, point in goals]
    columns = ["goal", "threshold", "precision", "recall", "F1", "labels per document", "documents with a label"]
    curve = found.curve
    chart = line_chart(
        [Line("", [p.recall for p in curve], [p.precision for p in curve])],
        Axis("recall", 0, 1), Axis("precision", 0, 1), "Precision by recall over all thresholds",
        "Precision and recall of all thresholds",
    )  # fmt: skip
    goal = (
        "A document gets all labels whose score is at least the threshold. For a precision, the lowest threshold that "
        "reaches it is shown, which finds the most labels. Labels that were not predicted at all cannot be found: "
        f"the highest possible recall is {percent(found.lowest.recall)} %. The thresholds were chosen on the documents "
        "of this report, so new documents give slightly lower figures. They are valid for this model only."
    )
    return section(
        "thresholds", "Which threshold?", paragraph(goal, "note"),
        table("Thresholds by goal; shares in percent", columns, rows, style="thresholds"),
        side_by_side(chart, _by_threshold(curve, found.best.threshold)),
    )  # fmt: skip


def _row(goal: str, point: Point | None, decimals: int) -> list[Cell]:
    if point is None:
        return [Cell(goal, kind="text"), Cell("not reached", kind="number", style="quiet"), *[Cell("–")] * 5]
    return [
        Cell(goal, kind="text"), Cell(f"{point.threshold:.{decimals}f}"), share(point.precision), share(point.recall),
        share(point.f1), Cell(f"{point.labels_per_document:.2f}"), share(point.documents_with_label),
    ]  # fmt: skip


def _by_threshold(curve: Sequence[Point], best: float) -> Html:
    xs = [point.threshold for point in curve]
    if min(xs) < 0 or max(xs) > 1:
        x = axis_around(xs, "threshold")
    elif 0 < best < _SMALL:
        # On a linear axis, small scores would share a few pixels.
        curve = [point for point in curve if point.threshold >= best * _BELOW_BEST]
        x = Axis("threshold (logarithmic)", curve[-1].threshold, 1, _TICKS, logarithmic=True)
    else:
        x = Axis("threshold", 0, 1)
    xs = [point.threshold for point in curve]
    names = ("precision", "recall", "F1")
    lines = [Line(name, xs, [getattr(point, name.lower()) for point in curve]) for name in names]
    return line_chart(lines, x, Axis("", 0, 1), "Precision, recall and F1 by threshold")


def calibration(report: Report) -> Html:
    """Return the section with the reliability diagram and its table, or a note if scores are not from 0 to 1."""
    found = report.calibration
    title = "Are scores probabilities?"
    if not found.applies:
        text = "The scores are not between 0 and 1, so they cannot be read as probabilities. They rank the labels."
        return section("calibration", title, paragraph(text))
    seen = [one for one in found.bins if one.count and one.mean_score is not None and one.share_correct is not None]
    lines = [
        Line("labels with a score in a range of 0.1", [one.mean_score or 0 for one in seen],
             [one.share_correct or 0 for one in seen], dots=True),
        Line("if scores were probabilities", [0, 1], [0, 1], style="ideal"),
    ]  # fmt: skip
    x, y = Axis("mean score", 0, 1), Axis("share of true labels", 0, 1)
    chart = line_chart(lines, x, y, "Share of true labels by score", "Reliability diagram")
    columns = ["score", "predicted labels", "mean score", "true, %"]
    rows = [
        [
            Cell(f"{one.low:.1f} to {one.high:.1f}", kind="text"), count(one.count),
            Cell("–" if one.mean_score is None else f"{one.mean_score:.3f}"), share(one.share_correct),
        ]
        for one in found.bins
    ]  # fmt: skip
    which = "best labels of all documents" if report.single_label else "predicted labels"
    about = (
        f"If scores were probabilities, of the {which} with a score of 0.8, 80 % would be true. The expected "
        f"calibration error, the mean distance from that, is {percent(found.error)} points."
    )
    return section(
        "calibration", title, paragraph(about),
        side_by_side(chart, table("True labels by score", columns, rows, style="bins")),
    )  # fmt: skip


def learning(report: Report) -> Html:
    charts: dict[str, list[Curve]] = {}
    for curve in report.inputs.curves:
        charts.setdefault(curve.chart or curve.name, []).append(curve)
    if not charts:
        return ""
    drawn = [_chart(title, curves) for title, curves in list(charts.items())[:_MOST_CHARTS]]
    return section("learning", "Learning curves", side_by_side(*drawn))


def _chart(title: str, curves: list[Curve]) -> Html:
    lines = []
    for curve in curves:
        every = max(1, len(curve.steps) // _CURVE_POINTS)
        lines.append(Line(curve.name, curve.steps[::every], curve.values[::every], dots=len(curve.steps) <= 30))
    x = axis_around([step for line in lines for step in line.xs], curves[0].x_title)
    values = [value for line in lines for value in line.ys]
    y = axis_to(values, "") if min(values, default=0) >= 0 else axis_around(values, "")
    return line_chart(lines, x, y, title)


def settings(report: Report) -> Html:
    rows = [
        [Cell(text(str(key)), kind="text"), Cell(text(str(value), 500), kind="text")]
        for key, value in report.inputs.settings.items()
    ]
    html = table("Settings of this model", ["setting", "value"], rows)
    return section("settings", "Settings", html) if rows else ""

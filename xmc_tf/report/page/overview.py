"""The tables and charts about the whole prediction: metrics, thresholds, calibration, curves, and settings."""

import math
from collections.abc import Sequence

from xmc_tf.report.inputs import Curve
from xmc_tf.report.page.charts import Axis, Chart, Line, axis_around, axis_to, bar_chart, line_chart
from xmc_tf.report.page.elements import Cell, Table, clean, count, percent, share, words
from xmc_tf.report.report import Report
from xmc_tf.report.sections import summary
from xmc_tf.report.sections.scores import Point

sentences = summary.sentences
ABOUT = {
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


def tiles(report: Report) -> list[tuple[str, str]]:
    """Return the titles and values of the most important figures."""
    overall, k = report.system.overall, report.comparison.ks[-1]
    if report.single_label:
        found = [("accuracy", percent(overall.at("P", 1))), ("macro F1", percent(overall.at("macro-F1", 1)))]
    else:
        found = [("P@1", percent(overall.at("P", 1)))]
        if k > 1:
            found += [(f"P@{k}", percent(overall.at("P", k))), (f"R@{k}", percent(overall.at("R", k)))]
        if report.thresholds.best:
            found.append(("best F1", percent(report.thresholds.best.f1)))
    return [(title, value if value == "–" else f"{value} %") for title, value in found]


def metric_charts(report: Report) -> list[Chart]:
    comparison, k = report.comparison, report.comparison.ks[-1]
    ranks = Axis("k", 0.5, k + 0.5, tuple(range(1, k + 1, max(1, k // 10))))
    charts = []
    for measure, name in (("P", "Precision"), ("R", "Recall")):
        lines = [
            Line(one.name, one.overall.ks, (100 * one.overall.values[measure]).tolist(), dots=True)
            for one in comparison.systems
        ]
        axis, about = Axis(f"{measure}@k, %", 0, 100), f"{name} by number of labels"
        charts.append(line_chart(lines, ranks, axis, about, f"{name} at k"))
    return charts


def metrics(report: Report) -> Table:
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
    return Table(caption, columns, rows, style="metrics")


def frequencies(report: Report) -> Table:
    """Return a table of metrics by label frequency. Without frequencies, it has no rows."""
    comparison, k = report.comparison, report.comparison.ks[-1]
    many = len(comparison.systems) > 1
    rows = [
        [
            Cell(bucket.bucket, kind="text"), *([words(system.name)] if many else []), count(bucket.labels),
            *(share(system.buckets[number].at(measure, k)) for measure in comparison.measures),
        ]
        for number, bucket in enumerate(report.system.buckets)
        for system in comparison.systems
    ]  # fmt: skip
    hints = {f"{measure}@{k}": ABOUT[measure] for measure in comparison.measures}
    columns = [f"{comparison.occurs_in} documents", *(["prediction"] if many else []), "labels", *hints]
    return Table("Metrics by label frequency", columns, rows, style="frequency", hints=hints)


def frequency_chart(report: Report) -> Chart:
    comparison, k = report.comparison, report.comparison.ks[-1]
    values = [(s.name, [100 * bucket.at("R", k) for bucket in s.buckets]) for s in comparison.systems]
    highest = axis_to([value for _, row in values for value in row], f"R@{k}, %")
    names = [bucket.bucket for bucket in report.system.buckets]
    title = f"{comparison.occurs_in} documents of the label"
    return bar_chart(names, values, highest, title, f"Recall at {k} by label frequency")


def _known(value: float) -> float:
    return -1.0 if math.isnan(value) else value


def goals(report: Report) -> Table:
    """Return the table of thresholds by goal."""
    found = report.thresholds
    points: list[tuple[str, Point | None]] = [("best F1", found.best)]
    points += [(f"precision {target:.0%}", point) for target, point in found.for_precision]
    points.append(("everything predicted", found.lowest))
    # All thresholds have as many decimals as the smallest one needs.
    least = min((abs(point.threshold) for _, point in points if point and point.threshold), default=1.0)
    decimals = min(max(2 - math.floor(math.log10(least)), 2), 8)
    rows = [_row(goal, point, decimals) for goal, point in points]
    columns = ["goal", "threshold", "precision", "recall", "F1", "labels per document", "documents with a label"]
    return Table("Thresholds by goal; shares in percent", columns, rows, style="thresholds")


def _row(goal: str, point: Point | None, decimals: int) -> list[Cell]:
    if point is None:
        return [Cell(goal, kind="text"), Cell("not reached", style="quiet"), *[Cell("–")] * 5]
    return [
        Cell(goal, kind="text"), Cell(f"{point.threshold:.{decimals}f}"), share(point.precision), share(point.recall),
        share(point.f1), Cell(f"{point.labels_per_document:.2f}"), share(point.documents_with_label),
    ]  # fmt: skip


def precision_by_recall(curve: Sequence[Point]) -> Chart:
    line = Line("", [point.recall for point in curve], [point.precision for point in curve])
    about, caption = "Precision by recall over all thresholds", "Precision and recall of all thresholds"
    return line_chart([line], Axis("recall", 0, 1), Axis("precision", 0, 1), about, caption)


def by_threshold(curve: Sequence[Point], best: float) -> Chart:
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


def reliability(report: Report) -> Chart:
    """Return the reliability diagram."""
    bins = report.calibration.bins
    seen = [one for one in bins if one.count and one.mean_score is not None and one.share_correct is not None]
    lines = [
        Line("labels with a score in a range of 0.1", [one.mean_score or 0 for one in seen],
             [one.share_correct or 0 for one in seen], dots=True),
        Line("if scores were probabilities", [0, 1], [0, 1], style="ideal"),
    ]  # fmt: skip
    x, y = Axis("mean score", 0, 1), Axis("share of true labels", 0, 1)
    return line_chart(lines, x, y, "Share of true labels by score", "Reliability diagram")


def by_score(report: Report) -> Table:
    rows = [
        [
            Cell(f"{one.low:.1f} to {one.high:.1f}", kind="text"), count(one.count),
            Cell("–" if one.mean_score is None else f"{one.mean_score:.3f}"), share(one.share_correct),
        ]
        for one in report.calibration.bins
    ]  # fmt: skip
    columns = ["score", "predicted labels", "mean score", "true, %"]
    return Table("True labels by score", columns, rows, style="bins")


def learning_curves(report: Report) -> list[Chart]:
    charts: dict[str, list[Curve]] = {}
    for curve in report.inputs.curves:
        charts.setdefault(curve.chart or curve.name, []).append(curve)
    return [_chart(title, curves) for title, curves in list(charts.items())[:_MOST_CHARTS]]


def _chart(title: str, curves: list[Curve]) -> Chart:
    lines = []
    for curve in curves:
        every = max(1, len(curve.steps) // _CURVE_POINTS)
        lines.append(Line(curve.name, curve.steps[::every], curve.values[::every], dots=len(curve.steps) <= 30))
    x = axis_around([step for line in lines for step in line.xs], curves[0].x_title)
    values = [value for line in lines for value in line.ys]
    y = axis_to(values, "") if min(values, default=0) >= 0 else axis_around(values, "")
    return line_chart(lines, x, y, title)


def settings(report: Report) -> Table:
    rows = [
        [Cell(clean(str(key)), kind="text"), Cell(clean(str(value), 500), kind="text")]
        for key, value in report.inputs.settings.items()
    ]
    return Table("Settings of this model", ["setting", "value"], rows)

"""Thresholds and calibration."""

import math
from collections.abc import Sequence

from xmc_tf.report.page.charts import Axis, Line, axis_around, line_chart
from xmc_tf.report.page.elements import (
    NONE,
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
)
from xmc_tf.report.report import Report
from xmc_tf.report.sections.thresholds import Point

_UNIT = Axis("", 0, 1)
_SMALL = 0.1  # a best threshold below which the axis is logarithmic
_BELOW_BEST = 0.1  # lowest threshold of that axis, as a share of the best one
_TICKS = tuple(digit * 10.0**power for power in range(-9, 1) for digit in (1, 3))


def thresholds(report: Report) -> Html:
    found = report.thresholds
    if found.best is None or found.lowest is None:
        return ""
    goals: list[tuple[str, Point | None]] = [("best F1", found.best)]
    goals += [(f"precision {target:.0%}", point) for target, point in found.for_precision]
    goals.append(("everything predicted", found.lowest))
    decimals = _decimals([point for _, point in goals if point is not None])
    rows = [_row(goal, point, decimals) for goal, point in goals]
    columns = [
        Column("goal", "text"), Column("threshold"), Column("precision"), Column("recall"), Column("F1"),
        Column("labels per document"), Column("documents with a label"),
    ]  # fmt: skip
    curve = found.curve
    chart = line_chart(
        [Line("", [p.recall for p in curve], [p.precision for p in curve])],
        Axis("recall", 0, 1), Axis("precision", 0, 1), "Precision by recall over all thresholds",
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
        side_by_side(
            figure(chart, "Precision and recall of all thresholds"), _by_threshold(curve, found.best.threshold)
        ),
    )  # fmt: skip


def _decimals(points: Sequence[Point]) -> int:
    """Return the number of decimals that the smallest threshold needs."""
    least = min((abs(point.threshold) for point in points if point.threshold), default=1.0)
    return min(max(2 - math.floor(math.log10(least)), 2), 8)


def _row(goal: str, point: Point | None, decimals: int) -> list[Cell]:
    if point is None:
        return [Cell(goal, kind="text"), Cell("not reached", kind="number", style="quiet"), *[Cell(NONE)] * 5]
    return [
        Cell(goal, kind="text"), Cell(f"{point.threshold:.{decimals}f}"), share(point.precision), share(point.recall),
        share(point.f1), Cell(f"{point.labels_per_document:.2f}"), share(point.documents_with_label),
    ]  # fmt: skip


def _by_threshold(curve: Sequence[Point], best: float) -> Html:
    xs = [point.threshold for point in curve]
    if min(xs) < 0 or max(xs) > 1:
        x = axis_around(xs, "threshold")
    elif best < _SMALL:
        # On a linear axis, small scores would share a few pixels.
        curve = [point for point in curve if point.threshold >= best * _BELOW_BEST]
        x = Axis("threshold (logarithmic)", curve[-1].threshold, 1, _TICKS, logarithmic=True)
    else:
        x = Axis("threshold", 0, 1)
    xs = [point.threshold for point in curve]
    lines = [
        Line("precision", xs, [point.precision for point in curve]),
        Line("recall", xs, [point.recall for point in curve]),
        Line("F1", xs, [point.f1 for point in curve]),
    ]
    chart = line_chart(lines, x, _UNIT, "Precision, recall and F1 by threshold")
    return figure(chart, "Precision, recall and F1 by threshold")


def calibration(report: Report) -> Html:
    """Return a reliability diagram and its table."""
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
    chart = line_chart(
        lines, Axis("mean score", 0, 1), Axis("share of true labels", 0, 1), "Share of true labels by score"
    )
    columns = [Column("score", "text"), Column("predicted labels"), Column("mean score"), Column("true, %")]
    rows = [
        [
            Cell(f"{one.low:.1f} to {one.high:.1f}", kind="text"), count(one.count),
            Cell(NONE if one.mean_score is None else f"{one.mean_score:.3f}"), share(one.share_correct),
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
        side_by_side(figure(chart, "Reliability diagram"), table("True labels by score", columns, rows, style="bins")),
    )  # fmt: skip

"""Learning curves and settings."""

from collections.abc import Mapping
from typing import Any

from xmc_tf.report.inputs import Curve
from xmc_tf.report.page.charts import Line, axis_around, axis_to, line_chart
from xmc_tf.report.page.elements import Cell, Column, Html, figure, section, side_by_side, table, text
from xmc_tf.report.report import Report

_CHARTS = 12
_CURVE_POINTS = 400


def learning(report: Report) -> Html:
    charts: dict[str, list[Curve]] = {}
    for curve in report.inputs.curves:
        charts.setdefault(curve.chart or curve.name, []).append(curve)
    if not charts:
        return ""
    drawn = [_chart(title, curves) for title, curves in list(charts.items())[:_CHARTS]]
    return section("learning", "Learning curves", side_by_side(*drawn))


def _chart(title: str, curves: list[Curve]) -> Html:
    lines = []
    for curve in curves:
        every = max(1, len(curve.steps) // _CURVE_POINTS)
        lines.append(Line(curve.name, curve.steps[::every], curve.values[::every], dots=len(curve.steps) <= 30))
    x = axis_around([step for line in lines for step in line.xs], curves[0].x_title)
    values = [value for line in lines for value in line.ys]
    y = axis_to(values, "") if min(values, default=0) >= 0 else axis_around(values, "")
    return figure(line_chart(lines, x, y, title), title)


def settings(report: Report) -> Html:
    given: Mapping[str, Any] = report.inputs.settings
    if not given:
        return ""
    rows = [
        [Cell(text(str(key)), kind="text"), Cell(text(str(value), 500), kind="text")] for key, value in given.items()
    ]
    return section(
        "settings",
        "Settings",
        table("Settings of this model", [Column("setting", "text"), Column("value", "text")], rows),
    )

"""Plots of recorded runs: bars of a measure and learning curves, in a terminal or as one SVG file."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.atomic import atomic_file
from xmc_tf.metrics import percent
from xmc_tf.report.page.charts import HEIGHT, WIDTH, Line, axis_around, axis_to, bar_chart, line_chart
from xmc_tf.report.page.style import STYLE
from xmc_tf.tables.runs import Run

_BAR = 40


def plot_text(runs: Sequence[Run], measure: str) -> str:
    """Return bars of a measure for a terminal, and the learning curves of runs that have some."""
    chosen = with_measure(runs, measure)
    wide = max(len(f"run {run.id}  {run.model}") for run in chosen)
    lines = [f"{measure}, %"]
    for run in chosen:
        value = run.metrics[measure]
        lines.append(f"{f'run {run.id}  {run.model}':<{wide}}  {'█' * round(_BAR * value):<{_BAR}} {percent(value)}")
    for run in chosen:
        for name, points in run.curve.items():
            lines += ["", f"run {run.id}: {name}", *_curve_lines(points)]
    return "\n".join(lines)


def with_measure(runs: Sequence[Run], measure: str) -> list[Run]:
    """Return the runs that have a measure; refuse one that none has."""
    chosen = [run for run in runs if measure in run.metrics]
    if not chosen:
        known = list(dict.fromkeys(name for run in runs for name in run.metrics))
        raise InputError(
            f"no run has the measure {measure!r}",
            expected=", ".join(known) or "a run with test documents",
            fix="--metric NAME",
        )
    return chosen


def _curve_lines(points: Sequence[Any]) -> list[str]:
    most = max((abs(value) for _, value in points), default=1.0) or 1.0
    every = max(1, math.ceil(len(points) / 20))
    return [
        f"{step:>8g}  {'█' * round(_BAR * abs(value) / most):<{_BAR}} {value:.4g}" for step, value in points[::every]
    ]


def write_plot(runs: Sequence[Run], measure: str, path: Path) -> None:
    """Write bars of a measure, and learning curves, as one SVG file, with the charts of the evaluation report.

    Args:
        runs: the runs.
        measure: name of the measure.
        path: the file; its extension is .svg.
    """
    if path.suffix.lower() != ".svg":
        raise InputError(f"-o {path} has an unknown extension", expected="a file with the extension .svg")
    chosen = with_measure(runs, measure)
    values = [100 * run.metrics[measure] for run in chosen]
    names = [f"run {run.id}" for run in chosen]
    charts = [bar_chart(names, [(measure, values)], axis_to(values, f"{measure}, %"), "", f"{measure} of the runs")]
    for run in chosen:
        for name, points in run.curve.items():
            steps, found = [float(step) for step, _ in points], [float(value) for _, value in points]
            line, about = Line(name, steps, found), f"run {run.id}: {name}"
            charts.append(line_chart([line], axis_around(steps, about), axis_around(found, ""), about))
    # In the style sheet of a page, a chart is as wide as its figure; here, the charts are below each other.
    sizes = f"svg svg {{ width: {WIDTH}px; height: {HEIGHT}px; }}"
    placed = [chart.replace("<svg ", f'<svg y="{number * HEIGHT}" ', 1) for number, chart in enumerate(charts)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT * len(charts)}">'
    with atomic_file(path) as part:
        part.write_text("\n".join([head, f"<style>{STYLE}{sizes}</style>", *placed, "</svg>", ""]), encoding="utf-8")

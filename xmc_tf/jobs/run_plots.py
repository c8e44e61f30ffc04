"""Plots of recorded runs: bars of a measure and learning curves, in a terminal or as one SVG file."""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.atomic import atomic_file
from xmc_tf.metrics import percent
from xmc_tf.tables.runs import Run

_BAR = 40
_WIDTH, _LINE, _CURVE, _NAME = 760, 28, 220, 240
_COLOUR = "#0072b2"


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
    """Write bars of a measure, and learning curves, as one SVG file.

    Args:
        runs: the runs.
        measure: name of the measure.
        path: the file; its extension is .svg.
    """
    if path.suffix.lower() != ".svg":
        raise InputError(f"-o {path} has an unknown extension", expected="a file with the extension .svg")
    chosen = with_measure(runs, measure)
    parts, at = [_text(10, 22, f"{measure}, %")], 40.0
    for run in chosen:
        value = run.metrics[measure]
        long = (_WIDTH - _NAME - 80) * value
        parts.append(_text(10, at + 14, f"run {run.id}  {Path(run.model).name}"[:34]))
        parts.append(f'<rect x="{_NAME}" y="{at:g}" width="{long:.1f}" height="18" fill="{_COLOUR}"/>')
        parts.append(_text(_NAME + long + 8, at + 14, percent(value)))
        at += _LINE
    for run in chosen:
        for name, points in run.curve.items():
            parts += _curve(f"run {run.id}: {name}", points, at)
            at += _CURVE
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {at + 10:g}" font-family="sans-serif"'
    picture = [f'{head} font-size="13">', '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""]
    with atomic_file(path) as part:
        part.write_text("\n".join(picture), encoding="utf-8")


def _curve(title: str, points: Sequence[Any], top: float) -> list[str]:
    steps, values = [step for step, _ in points], [value for _, value in points]
    low, high = min(values, default=0.0), max(values, default=1.0)
    begin, end = min(steps, default=0), max(steps, default=1)
    places = [
        f"{70 + (step - begin) / ((end - begin) or 1) * (_WIDTH - 90):.1f},"
        f"{top + 190 - (value - low) / ((high - low) or 1) * 140:.1f}"
        for step, value in points
    ]
    return [
        _text(10, top + 26, title), _text(10, top + 54, f"{high:.4g}"), _text(10, top + 194, f"{low:.4g}"),
        _text(70, top + 212, f"{begin:g}"), _text(_WIDTH - 60, top + 212, f"{end:g}"),
        f'<polyline points="{" ".join(places)}" fill="none" stroke="{_COLOUR}" stroke-width="2"/>',
    ]  # fmt: skip


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'

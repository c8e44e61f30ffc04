"""Recorded runs as people read them: a list, one run, a comparison, bars in a terminal or as SVG."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.atomic import atomic_file
from xmc_tf.metrics import format_table, percent
from xmc_tf.metrics.svg import bars, curves
from xmc_tf.tables.runs import Run

_MEASURES = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "accuracy", "macro-F1")
_BAR = 40


def list_text(runs: Sequence[Run]) -> str:
    """Return a table of all runs, the newest last; the best value of each measure is marked."""
    if not runs:
        return "no runs yet: xmc-tf train DATA -m model records one"
    measures = [name for name in _MEASURES if any(name in run.metrics for run in runs)]
    best = {name: max(run.metrics.get(name, -1.0) for run in runs) for name in measures}
    rows = [
        [
            str(run.id), run.began[:16].replace("T", " "), run.kind, run.model, _span(run.seconds),
            *(_marked(run.metrics.get(name), best[name], len(runs)) for name in measures),
        ]
        for run in runs
    ]  # fmt: skip
    table = format_table(
        ["run", "begin (UTC)", "model", "folder", "time", *(f"{name} %" for name in measures)], rows, left=4
    )
    return table + ("\n\n*: best" if len(runs) > 1 and measures else "")


def run_text(run: Run) -> str:
    """Return everything about a run."""
    lines = [
        f"run {run.id}, {run.began.replace('T', ' ')}, {_span(run.seconds)}", f"command   {run.command}",
        f"model     {run.kind} in {run.model}",
        "data      " + ", ".join(f"{count:,} {split}" for split, count in run.documents.items())
        + f"; {run.labels:,} labels",
        "", *(f"- {sentence}" for sentence in run.chosen), "",
    ]  # fmt: skip
    if run.metrics:
        lines += [format_table(["measure", "%"], [[name, percent(value)] for name, value in run.metrics.items()]), ""]
    if run.trials:
        trials = [[one["name"], percent(one["score"]), "kept" if one["kept"] else ""] for one in run.trials]
        lines += [format_table(["settings tried", "validation %", ""], trials), ""]
    durations = [[part, _span(seconds)] for part, seconds in run.durations.items()]
    lines += [format_table(["part", "time"], durations), ""]
    changed = [[name, str(value)] for name, value in run.parameters.items()]
    lines += [format_table(["parameter", "value"], changed, width=200), ""]
    lines.append("versions  " + ", ".join(f"{name} {value}" for name, value in run.versions.items()))
    return "\n".join(lines)


def comparison_text(runs: Sequence[Run]) -> str:
    """Return the measures of runs side by side, and the parameters in which they differ."""
    head = [f"run {run.id}" for run in runs]
    names = list(dict.fromkeys(name for run in runs for name in run.metrics))
    measured = [
        [name, *(_marked(run.metrics.get(name), _best(runs, name), len(runs)) for run in runs)] for name in names
    ]
    parameters = dict.fromkeys(name for run in runs for name in run.parameters)
    different = [
        [name, *(str(run.parameters.get(name, "–")) for run in runs)]
        for name in parameters
        if len({str(run.parameters.get(name)) for run in runs}) > 1
    ]
    others = [
        ["model", *(run.kind for run in runs)], ["time", *(_span(run.seconds) for run in runs)],
        ["training documents", *(f"{run.documents.get('train', 0):,}" for run in runs)],
        ["test documents", *(f"{run.documents.get('test', 0):,}" for run in runs)],
    ]  # fmt: skip
    parts = [format_table(["", *head], others)]
    if measured:
        parts.append(format_table(["%", *head], measured) + "\n*: best")
    parts.append(
        format_table(["parameters that differ", *head], different) if different else "the parameters are equal"
    )
    if len({(tuple(run.documents.items()), run.labels) for run in runs}) > 1:
        parts.append("note: these runs had other documents or labels; their measures cannot be compared directly")
    return "\n\n".join(parts)


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
    charts = [
        bars(
            [f"run {run.id}" for run in chosen],
            [(measure, [100 * run.metrics[measure] for run in chosen])],
            y_title="%",
        )
    ]
    lines = [
        (f"run {run.id}: {name}", [int(step) for step, _ in points], np.array([value for _, value in points]))
        for run in chosen
        for name, points in run.curve.items()
        if points
    ]
    charts += [curves([line], x_title="step", y_title=line[0]) for line in lines]
    with atomic_file(path) as part:
        part.write_text(_stacked(charts), encoding="utf-8")


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


def _stacked(charts: Sequence[str]) -> str:
    """Return charts below each other as one picture, on white ground."""
    sizes = [[float(number) for number in chart.split('viewBox="0 0 ')[1].split('"')[0].split()] for chart in charts]
    total, at, parts = sum(height for _, height in sizes), 0.0, []
    for chart, (_, height) in zip(charts, sizes, strict=True):
        parts.append(chart.replace("<svg ", f'<svg y="{at:g}" ', 1))
        at += height
    width = max(width for width, _ in sizes)
    style = 'font-family="sans-serif" font-size="13"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{total:g}" {style}>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>"]) + "\n"


def _curve_lines(points: Sequence[Any]) -> list[str]:
    most = max((abs(value) for _, value in points), default=1.0) or 1.0
    every = max(1, math.ceil(len(points) / 20))
    return [
        f"{step:>8g}  {'█' * round(_BAR * abs(value) / most):<{_BAR}} {value:.4g}" for step, value in points[::every]
    ]


def _best(runs: Sequence[Run], name: str) -> float:
    return max(run.metrics.get(name, -1.0) for run in runs)


def _marked(value: float | None, best: float, count: int) -> str:
    if value is None:
        return "–"
    return percent(value) + ("*" if count > 1 and value == best else " " if count > 1 else "")


def _span(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"

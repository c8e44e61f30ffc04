"""Text views of recorded runs: a list, one run, a comparison."""

from collections.abc import Sequence

from xmc_tf.metrics import format_table, percent
from xmc_tf.tables.runs import Run

_MEASURES = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "accuracy", "macro-F1")


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
    """Return the measures of runs side by side, and the parameters that differ."""
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

"""``python -m xmc_tf.runs``: list, compare and delete the training runs on a data set."""

import csv
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xmc_tf.common.csv_cells import safe_cell
from xmc_tf.common.errors import InputError
from xmc_tf.common.process import cli
from xmc_tf.common.progress import span
from xmc_tf.metrics import format_table, percent
from xmc_tf.params import add_flags
from xmc_tf.store.files import atomic_file
from xmc_tf.store.outputs import check_output_path
from xmc_tf.tables.runs import Run, delete_run, predictions_of, run_of, runs_of
from xmc_tf.tables.store import TableStore
from xmc_tf.tables.table_flags import database_of

_ACTIONS = ("list", "show", "compare", "predictions", "delete")
_HEADER = ["line", "text", "true labels", "predicted labels", "scores"]
_MEASURES = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "accuracy", "macro-F1")
_OTHERS = "note: these runs used different documents or labels; their metrics cannot be compared directly"
_DESCRIPTION = """Work with the training runs that are recorded in a data set.

List them, show one, compare some:
    python -m xmc_tf.runs data.sqlite
    python -m xmc_tf.runs data.sqlite show 3
    python -m xmc_tf.runs data.sqlite compare 1 3
Write the predicted and the true labels of the test documents:
    python -m xmc_tf.runs data.sqlite predictions 3 -o predictions.csv
Delete the record of a run; its model folder stays:
    python -m xmc_tf.runs data.sqlite delete 2"""


def parser() -> cli.Parser:
    out = cli.make_parser("xmc_tf.runs", _DESCRIPTION, usage="%(prog)s DATA [ACTION] [RUN ...] [options]")
    out.add_argument("data", metavar="DATA", help="data set, or the table that it was prepared from")
    out.add_argument("action", nargs="?", choices=_ACTIONS, default="list", metavar="ACTION", help=", ".join(_ACTIONS))
    out.add_argument("runs", nargs="*", type=int, metavar="RUN", help="number of a run, from the list")
    out.add_argument("-o", "--output", metavar="FILE", help="CSV file of predictions to write (.csv)")
    out.add_argument("--json", action="store_true", help="print the runs as JSON")
    add_flags(out, "force", "verbose_level")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    cli.set_verbosity(arguments.verbose_level)
    path = Path(arguments.data)
    if not TableStore.is_data_set(path) and TableStore.is_data_set(database_of(path)):
        path = database_of(path)
    check_output_path("-o", arguments.output, {"DATA": path}, [",".join(_HEADER)], force=arguments.force)
    store = TableStore.open(path, write=arguments.action == "delete")
    _require(arguments)
    runs = [run_of(store, number) for number in arguments.runs] if arguments.runs else runs_of(store)
    if arguments.action == "delete":
        for number in arguments.runs:
            run = delete_run(store, number)
            print(f"run {number} is deleted; its model stays in {run.model}")
    elif arguments.action == "predictions":
        _write_predictions(store, runs[0].id, Path(arguments.output))
    elif arguments.json:
        print(json.dumps([dataclasses.asdict(run) for run in runs], indent=1))
    elif arguments.action == "show":
        _print("\n\n".join(map(run_text, runs)))
    else:
        _print(comparison_text(runs) if arguments.action == "compare" else list_text(runs))


def _require(arguments: cli.GivenFlags) -> None:
    action = arguments.action
    unused = {"output": action != "predictions", "json": action in ("predictions", "delete")}
    arguments.refuse(*(name for name, found in unused.items() if found), where=f"with {action}")
    needed = {"show": 1, "compare": 2, "delete": 1, "predictions": 1}.get(arguments.action, 0)
    if len(arguments.runs) < needed:
        raise InputError(
            f"{arguments.action} needs the numbers of runs", expected=f"at least {needed}",
            received=f"{len(arguments.runs)}", fix=f"python -m xmc_tf.runs {arguments.data} lists them",
        )  # fmt: skip
    if arguments.action == "predictions" and (arguments.output or "")[-4:].lower() != ".csv":
        raise InputError(
            "the action 'predictions' writes a CSV file", expected="-o FILE.csv", received=arguments.output or "no -o"
        )


def _write_predictions(store: TableStore, number: int, path: Path) -> None:
    """Write a row for each test document with its line in the table, its text, and the true and predicted labels."""
    names, Y = store.names, store.labels("test")
    found = list(predictions_of(store, number))
    if [document for document, *_ in found] != store.ids("test").tolist():
        raise InputError(
            f"run {number} has no predictions of the current test documents",
            expected="a run with test documents, trained on the current splits", fix="train again",
        )  # fmt: skip
    with atomic_file(path) as part, part.open("w", encoding="utf-8", errors="replace", newline="") as file:
        out = csv.writer(file)
        out.writerow(_HEADER)
        texts = iter(store.texts("test"))
        for row, (document, labels, scores) in enumerate(found):
            (line,) = store.connection.execute("SELECT line FROM documents WHERE id = ?", (document,)).fetchone()
            true = [names[at] for at in Y[row].indices]
            cells = (next(texts), "|".join(true), "|".join(names[at] for at in labels))
            out.writerow([line, *map(safe_cell, cells), "|".join(f"{score:.6g}" for score in scores)])


def _print(text: str) -> None:
    print(text, file=sys.stdout)


def list_text(runs: Sequence[Run]) -> str:
    """Return a table of the runs, in the given order, with the best value of each metric marked."""
    if not runs:
        return "no runs yet: xmc-tf train DATA -m model records one"
    measures = [name for name in _MEASURES if any(name in run.metrics for run in runs)]
    best = {name: max(run.metrics.get(name, -1.0) for run in runs) for name in measures}
    rows = [
        [
            str(run.id), run.began[:16].replace("T", " "), run.kind, run.model, span(run.seconds),
            *(_marked(run.metrics.get(name), best[name], len(runs)) for name in measures),
        ]
        for run in runs
    ]  # fmt: skip
    table = format_table(
        ["run", "begin (UTC)", "model", "folder", "time", *(f"{name} %" for name in measures)], rows, left=4
    )
    return table + ("\n\n*: best" if len(runs) > 1 and measures else "") + (f"\n{_OTHERS}" if _differ(runs) else "")


def _differ(runs: Sequence[Run]) -> bool:
    """Return whether the table was corrected, read otherwise or divided again between these runs."""
    counts = {(tuple(run.documents.items()), run.labels) for run in runs}
    return len(counts) > 1 or len({run.data for run in runs if run.data}) > 1


def run_text(run: Run) -> str:
    lines = [
        f"run {run.id}, {run.began.replace('T', ' ')}, {span(run.seconds)}", f"command   {run.command}",
        f"model     {run.kind} in {run.model}",
        "data      " + ", ".join(f"{count:,} {split}" for split, count in run.documents.items())
        + f"; {run.labels:,} labels",
        "", *(f"- {sentence}" for sentence in run.chosen), "",
    ]  # fmt: skip
    if run.metrics:
        lines += [format_table(["measure", "%"], [[name, percent(value)] for name, value in run.metrics.items()]), ""]
    if run.trials:
        trials = [[*_change(one), percent(one["score"]), "kept" if one["kept"] else ""] for one in run.trials]
        lines += [format_table(["settings tried", "", "validation %", ""], trials), ""]
    durations = [[part, span(seconds)] for part, seconds in run.durations.items()]
    lines += [format_table(["part", "time"], durations), ""]
    changed = [[name, str(value)] for name, value in run.parameters.items()]
    lines += [format_table(["parameter", "value"], changed, width=200), ""]
    lines.append("versions  " + ", ".join(f"{name} {value}" for name, value in run.versions.items()))
    return "\n".join(lines)


def _change(trial: Mapping[str, Any]) -> list[str]:
    """Return the setting that a trial changed, and its value."""
    return [trial["setting"] or "the first settings", trial["value"]]


def comparison_text(runs: Sequence[Run]) -> str:
    """Return a comparison of runs: their metrics side by side, and the parameters that differ."""
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
        ["model", *(run.kind for run in runs)], ["time", *(span(run.seconds) for run in runs)],
        ["training documents", *(f"{run.documents.get('train', 0):,}" for run in runs)],
        ["test documents", *(f"{run.documents.get('test', 0):,}" for run in runs)],
    ]  # fmt: skip
    parts = [format_table(["", *head], others)]
    if measured:
        parts.append(format_table(["%", *head], measured) + "\n*: best")
    parts.append(
        format_table(["parameters that differ", *head], different) if different else "the parameters are equal"
    )
    if _differ(runs):
        parts.append(_OTHERS)
    return "\n\n".join(parts)


def _best(runs: Sequence[Run], name: str) -> float:
    return max(run.metrics.get(name, -1.0) for run in runs)


def _marked(value: float | None, best: float, count: int) -> str:
    if value is None:
        return "–"
    return percent(value) + ("*" if count > 1 and value == best else " " if count > 1 else "")


if __name__ == "__main__":
    cli.run(main)

"""``python -m xmc_tf.runs``: list, compare and delete the trainings on a data set."""

import argparse
import csv
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.atomic import atomic_file
from xmc_tf.common.files.csv_cells import safe_cell
from xmc_tf.common.files.outputs import refuse_output
from xmc_tf.common.process import cli
from xmc_tf.common.process.terminal import printable
from xmc_tf.jobs.run_views import comparison_text, list_text, run_text
from xmc_tf.params import add_force, add_verbosity
from xmc_tf.tables.runs import delete_run, predictions_of, run_of, runs_of
from xmc_tf.tables.store import TableStore
from xmc_tf.tables.table_flags import database_of

_ACTIONS = ("list", "show", "compare", "predictions", "delete")
_HEADER = ["line", "text", "true labels", "predicted labels", "scores"]
_DESCRIPTION = """Work with the trainings that are recorded in a data set.

List them, show one, compare some:
    python -m xmc_tf.runs data.sqlite
    python -m xmc_tf.runs data.sqlite show 3
    python -m xmc_tf.runs data.sqlite compare 1 3
Write the predicted and the true labels of the test documents:
    python -m xmc_tf.runs data.sqlite predictions 3 -o predictions.csv
Delete the record of a run; its model folder stays:
    python -m xmc_tf.runs data.sqlite delete 2"""


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser("xmc_tf.runs", _DESCRIPTION, usage="%(prog)s DATA [ACTION] [RUN ...] [options]")
    out.add_argument("data", metavar="DATA", help="data set, or the table that it was prepared from")
    out.add_argument("action", nargs="?", choices=_ACTIONS, default="list", metavar="ACTION", help=", ".join(_ACTIONS))
    out.add_argument("runs", nargs="*", type=int, metavar="RUN", help="number of a run, from the list")
    out.add_argument("-o", "--output", metavar="FILE", help="file of predictions to write: .csv")
    out.add_argument("--json", action="store_true", help="print the runs as JSON")
    add_force(out)
    add_verbosity(out)
    return out


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser().parse_args(argv, cli.GivenFlags())
    cli.set_verbosity(arguments.verbose_level)
    path = Path(arguments.data)
    if not TableStore.is_data_set(path) and TableStore.is_data_set(database_of(path)):
        path = database_of(path)
    refuse_output("-o", arguments.output, {"DATA": path}, [",".join(_HEADER)], force=arguments.force)
    store = TableStore.open(path, write=arguments.action == "delete")
    _require(arguments)
    runs = [run_of(store, number) for number in arguments.runs] if arguments.runs else runs_of(store)
    if arguments.action == "delete":
        for number in arguments.runs:
            run = delete_run(store, number)
            print(printable(f"run {number} is deleted; its model stays in {run.model}"))
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
            "predictions need a file", expected="-o with the extension .csv", received=arguments.output or "no -o"
        )


def _write_predictions(store: TableStore, number: int, path: Path) -> None:
    """Write a row per test document: its line in the table, its text, the true and the predicted labels."""
    names, Y = store.names, store.labels("test")
    found = list(predictions_of(store, number))
    if [document for document, *_ in found] != store.ids("test").tolist():
        raise InputError(
            f"run {number} has no predictions of the present test documents",
            expected="a run with test documents, after which the splits did not change",
            fix="train again",
        )
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
    print(printable(text, keep="\n"), file=sys.stdout)


if __name__ == "__main__":
    cli.run(main)

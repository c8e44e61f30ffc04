"""Write the files of a report: one page for people, and the data for programs."""

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from xmc_tf.common.csv_cells import safe_cell
from xmc_tf.report.card import write_card
from xmc_tf.report.inputs import ReportInputs
from xmc_tf.report.page.labels import CONFUSIONS_FILE, LABELS_FILE
from xmc_tf.report.page.page import GENERATOR, to_html
from xmc_tf.report.report import Report, make_report
from xmc_tf.report.sections.examples import Example
from xmc_tf.report.sections.scores import Point
from xmc_tf.report.sections.summary import sentences
from xmc_tf.store.files import atomic_files
from xmc_tf.store.outputs import Named, check_output_folder, check_output_path

PAGE, DATA, THRESHOLDS_FILE = "report.html", "report.json", "thresholds.csv"
_LABELS_HEADER = [
    "label", "name", "training_documents", "test_documents", "assigned", "right", "precision", "recall", "f1"
]  # fmt: skip
_CONFUSIONS_HEADER = ["true", "assigned", "documents"]
# Each file, with a text by which it is recognised as one of a report.
_FILES = {
    PAGE: GENERATOR,
    DATA: '"title":',
    LABELS_FILE: ",".join(_LABELS_HEADER),
    THRESHOLDS_FILE: ",".join(Point.__dataclass_fields__),
    CONFUSIONS_FILE: ",".join(_CONFUSIONS_HEADER),
}


def refuse_report(
    flag: str, folder: str | Path, inputs: Mapping[str, Named], *, force: bool = False,
    files: Mapping[str, str] = _FILES,
) -> None:  # fmt: skip
    """Raise an error if the folder is an input or, without ``force``, if files not made by xmc_tf would be replaced."""
    check_output_folder(flag, folder, inputs)
    for name, mark in files.items():
        check_output_path(flag, Path(folder) / name, inputs, [mark], force=force)


def write_report(
    inputs: ReportInputs, folder: str | Path, *, model_folder: str | Path | None = None, data: str = ""
) -> Path:
    """Write a report: a page without external resources (``report.html``), and its data as JSON and CSV.

    Example:
        >>> inputs = ReportInputs("Subjects", load_matrix("Y.tst.npz"), load_matrix("pred.npz"))
        >>> write_report(inputs, "report")
        PosixPath('report/report.html')

    Args:
        inputs: predictions, true labels, and optional data that explain them.
        folder: output folder. It is created if it does not exist; other files in it are kept.
        model_folder: folder of ``inputs.model``, for a model card (a ``README.md`` in the format of Hugging Face).
            The documents must not have been used to train this model (default: no card).
        data: name of the evaluation data on the model card (default: the title of the report).

    Returns:
        The path of the page.
    """
    folder = Path(folder)
    report = make_report(inputs)
    columns, name_of = list(Point.__dataclass_fields__), inputs.label_name
    points = ([getattr(point, name) for name in columns] for point in report.thresholds.curve)
    confusions = ([name_of(pair.true), name_of(pair.assigned), pair.documents] for pair in report.confusion.pairs)
    # All or none, so that a page always has its files, of the same report.
    with atomic_files(*(folder / name for name in _FILES)) as (page, data_file, labels, thresholds, confused):
        write_csv(labels, _LABELS_HEADER, _label_rows(report, report.labels.order.tolist()))
        write_csv(thresholds, columns, points)
        write_csv(confused, _CONFUSIONS_HEADER, confusions)
        content = json.dumps(to_json(report), ensure_ascii=True, indent=1)
        data_file.write_text(content + "\n", encoding="utf-8")
        page.write_text(to_html(report), encoding="utf-8", errors="replace")
    if model_folder is not None and inputs.model is not None:
        write_card(model_folder, inputs.model, report, data or inputs.title)
    return folder / PAGE


def to_json(report: Report) -> dict[str, Any]:
    """Return a report as JSON values. Undefined numbers are null. Only the labels shown on the page are included."""
    labels, name_of = report.labels, report.inputs.label_name
    return _without_nan({
        "title": report.inputs.title, "summary": sentences(report), "evaluation": report.comparison.to_json(),
        "single_label": report.single_label, "rule": report.decisions.rule,
        "thresholds": {
            "best_f1": report.thresholds.best and asdict(report.thresholds.best),
            "for_precision": [
                {"goal": goal, **(asdict(point) if point else {})} for goal, point in report.thresholds.for_precision
            ],
            "curve": [asdict(point) for point in report.thresholds.curve],
        },
        "calibration": asdict(report.calibration),
        "coverage": None if report.coverage is None else asdict(report.coverage),
        "labels": [
            dict(zip(_LABELS_HEADER, row, strict=True)) for row in _label_rows(report, labels.shown.tolist())
        ],
        "confusion": {
            "pairs": [
                {"true": name_of(pair.true), "assigned": name_of(pair.assigned), "documents": pair.documents}
                for pair in report.confusion.pairs
            ],
            "matrix_of": report.confusion.kind, "names": list(report.confusion.names),
            "matrix": report.confusion.matrix.tolist(),
        },
        "examples": [_example(report, example) for example in report.examples],
        "curves": [
            {"name": curve.name, "chart": curve.chart, "steps": list(curve.steps), "values": list(curve.values)}
            for curve in report.inputs.curves
        ],
        "settings": {str(key): str(value) for key, value in report.inputs.settings.items()},
    })  # fmt: skip


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file. None becomes an empty cell, and cells that a spreadsheet would run as formulas are escaped."""
    with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([safe_cell(_known(cell)) for cell in row] for row in rows)


def _label_rows(report: Report, chosen: Iterable[int]) -> Iterable[list[object]]:
    labels = report.labels
    precision, recall, f1 = labels.precision, labels.recall, labels.f1
    for label in chosen:
        yield [
            label, report.inputs.label_name(label), None if labels.training is None else int(labels.training[label]),
            int(labels.true[label]), int(labels.assigned[label]), int(labels.right[label]),
            float(precision[label]), float(recall[label]), float(f1[label]),
        ]  # fmt: skip


def _example(report: Report, example: Example) -> dict[str, Any]:
    name_of = report.inputs.label_name
    return {
        "kind": example.kind, "document": example.document, "text": example.text, "characters_left_out": example.cut,
        "labels": [
            {"name": name_of(one.label), "score": one.score, "true": one.true, "assigned": one.assigned}
            for one in example.labels
        ],
        "explained": None if example.explained is None else asdict(example.explained),
    }  # fmt: skip


def _known(cell: object) -> object:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    return _known(value)

"""Predict labels for a table, which is read and written in pieces so that memory use is bounded."""

import argparse
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.progress import Progress
from xmc_tf.metrics.category_paths import CategoryPaths
from xmc_tf.tables.column_choice import choose_columns
from xmc_tf.tables.column_names import IDS, column_of
from xmc_tf.tables.columns import ColumnOptions, TrainedColumns
from xmc_tf.tables.reading.options import SourceOptions
from xmc_tf.tables.reading.records import BadRow, TableReader, TableRow
from xmc_tf.tables.reading.sources import open_source
from xmc_tf.tables.reading_flags import source_options, text_columns
from xmc_tf.tables.store import TableStore
from xmc_tf.tables.writing import LabelFile

_LOG = logging.getLogger(__name__)
ROWS, _LETTERS = 8192, 1 << 25  # of a piece
_SAMPLE = 1000
_LABELS = 5  # per row, unless the user says otherwise
_SHOWN = 5
_SUMMED = 50  # labels whose probabilities are added up to that of a category


def label_table(
    arguments: argparse.Namespace,
    trained: TrainedColumns | None,
    predict: Callable[[list[str], int], csr_matrix],  # returns a number of labels of some texts
    names: Sequence[str] | None,
) -> None:
    """Predict and write the labels of all rows of a table."""
    if arguments.save_pred_path is None:
        raise InputError("-o is missing", expected="a file for the labels of the table", fix="add -o labels.csv")
    table, output, back_off = Path(arguments.table), Path(arguments.save_pred_path), arguments.back_off
    reading, count = source_options(arguments), arguments.only_topk or _LABELS if back_off is None else 1
    paths = CategoryPaths.of(names) if back_off is not None else None
    if back_off is not None and paths is None:
        raise InputError(
            "--back-off: the labels of this model are not category paths", expected="labels such as Shoes > Boots",
            fix="leave it out",
        )  # fmt: skip
    if reading.table is None and TableStore.is_data_set(table):  # it has columns of its own, whatever its table had
        reading, trained = SourceOptions("sqlite", table="documents"), None
    source = open_source(table, reading)
    sample = [row.cells for row in islice(source.records(), _SAMPLE) if isinstance(row, TableRow)]
    options = ColumnOptions(text=text_columns(arguments), trained=trained)
    columns, guesses = choose_columns(source.name, source.columns, sample, options, labelled=False)
    for guess in guesses:
        if guess.startswith("texts:"):
            _LOG.info("guessed: %s", guess)
    kept = _kept(source, arguments.keep)
    bad: list[tuple[int, str]] = []
    done = 0
    with (
        LabelFile(output, [source.columns[at] for at in kept], count, source) as out,
        Progress(f"labelling {Path(source.name).name}", source.size, source.unit) as progress,
    ):
        for rows in _pieces(source):
            faults = [columns.fault(row.cells) if isinstance(row, TableRow) else row.reason for row in rows]
            texts = [
                columns.text_of(row.cells) if isinstance(row, TableRow) and not fault else ""
                for row, fault in zip(rows, faults, strict=True)
            ]
            texts = [" ".join(text.split()) for text in texts]
            predicted = predict(texts, count if paths is None else _SUMMED)
            bad += [(row.line, fault) for row, fault in zip(rows, faults, strict=True) if fault]
            for row, text, a, b in zip(rows, texts, predicted.indptr, predicted.indptr[1:], strict=False):
                found = zip(predicted.indices[a:b].tolist(), predicted.data[a:b].tolist(), strict=True)
                if paths is not None:
                    category = paths.back_off(found, back_off) if text else None
                    labels = [] if category is None else [category]
                else:
                    labels = [(names[at] if names else str(at), score) for at, score in found] if text else []
                cells = [row.cells[at] if isinstance(row, TableRow) else None for at in kept]
                out.write(row.line, cells, labels)
            done += len(rows)
            progress.add(source.done() - progress.done)
    if bad:
        listed = "; ".join(f"line {line:,}: {reason}" for line, reason in bad[:_SHOWN])
        _LOG.warning("%s rows could not be read and have no labels: %s", f"{len(bad):,}", listed)
    _LOG.info("%s rows: %s", f"{done:,}", output)


def _kept(source: TableReader, keep: str | None) -> list[int]:
    """Return the numbers of the columns to copy to the output (default: an identifier column, if there is one)."""
    if keep is None:
        ids = column_of(source.columns, IDS)
        return [] if ids is None else [ids]
    if keep == "all":
        return list(range(len(source.columns)))
    wanted = keep.split(",")
    if missing := [name for name in wanted if name not in source.columns]:
        raise InputError(
            f"{source.name} has no column {missing[0]!r}", expected="one of " + ", ".join(source.columns[:20]),
            fix="--keep NAME,… or --keep all",
        )  # fmt: skip
    return [source.columns.index(name) for name in wanted]


def _pieces(source: TableReader) -> Iterator[list[TableRow | BadRow]]:
    """Yield lists of rows, limited in both their number and the total length of their texts."""
    rows: list[TableRow | BadRow] = []
    letters = 0
    for row in source.records():
        rows.append(row)
        if isinstance(row, TableRow):
            letters += sum(len(cell) for cell in row.cells if isinstance(cell, str))
        if len(rows) == ROWS or letters >= _LETTERS:
            yield rows
            rows, letters = [], 0
    if rows:
        yield rows

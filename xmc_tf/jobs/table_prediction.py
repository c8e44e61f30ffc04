"""Prediction for a table: read, labelled and written piece by piece, in bounded memory."""

import argparse
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.progress import Progress
from xmc_tf.metrics.category_paths import CategoryPaths
from xmc_tf.tables.columns import ColumnOptions, TrainedColumns, choose_columns, column_of_ids
from xmc_tf.tables.reading.label_files import LabelFile
from xmc_tf.tables.reading.options import SourceOptions
from xmc_tf.tables.reading.records import BadRow, TableReader, TableRow
from xmc_tf.tables.reading.sources import open_source
from xmc_tf.tables.reading_flags import source_options, text_columns
from xmc_tf.tables.store import TableStore

_LOG = logging.getLogger(__name__)
ROWS, _LETTERS = 8192, 1 << 25  # of a piece
_SAMPLE = 1000
_LABELS = 5  # per row, unless the user says otherwise
_SHOWN = 5
_SUMMED = 50  # labels whose probabilities are added up to that of a category

Predict = Callable[[list[str], int], csr_matrix]


@dataclass(frozen=True)
class TablePrediction:
    """A prediction for a table."""

    table: Path
    output: Path
    source: SourceOptions = SourceOptions()  # noqa: RUF009  it is frozen
    text: Sequence[str] | None = None
    keep: Sequence[str] | None = None
    labels: int = _LABELS
    trained: TrainedColumns | None = None
    back_off: float | None = None  # of category paths: name the deepest category with this probability

    def run(self, predict: Predict, names: Sequence[str] | None) -> int:
        """Write the labels of all rows; return the number of rows. ``predict`` returns the n best labels of texts."""
        paths = CategoryPaths.of(names) if self.back_off is not None else None
        if self.back_off is not None and paths is None:
            raise InputError(
                "--back-off: the labels of this model are no category paths", expected="labels such as Shoes > Boots",
                fix="leave it out",
            )  # fmt: skip
        source = open_source(self.table, self._source())
        sample = [row.cells for row in islice(source.records(), _SAMPLE) if isinstance(row, TableRow)]
        # A data set has columns of its own, whatever its table had.
        trained = None if self._is_data_set else self.trained
        options = ColumnOptions(text=self.text, trained=trained)
        columns, guesses = choose_columns(source.name, source.columns, sample, options, labelled=False)
        for guess in guesses:
            if guess.startswith("texts:"):
                _LOG.info("guessed: %s", guess)
        kept = self._kept(source)
        bad: list[BadRow] = []
        count = 0
        with (
            LabelFile(self.output, [source.columns[at] for at in kept], self.labels, source) as out,
            Progress(f"labelling {Path(source.name).name}", source.size, source.unit) as progress,
        ):
            for rows in _pieces(source):
                texts = [columns.text_of(row.cells) if isinstance(row, TableRow) else "" for row in rows]
                texts = [" ".join(text.split()) for text in texts]
                predicted = predict(texts, self.labels if paths is None else _SUMMED)
                for row, text, a, b in zip(rows, texts, predicted.indptr, predicted.indptr[1:], strict=False):
                    if isinstance(row, BadRow):
                        bad.append(row)
                    found = zip(predicted.indices[a:b].tolist(), predicted.data[a:b].tolist(), strict=True)
                    if paths is not None and self.back_off is not None:
                        category = paths.back_off(found, self.back_off) if text else None
                        labels = [] if category is None else [category]
                    else:
                        labels = [(names[at] if names else str(at), score) for at, score in found] if text else []
                    cells = [row.cells[at] if isinstance(row, TableRow) else None for at in kept]
                    out.write(row.line, cells, labels)
                count += len(rows)
                progress.add(source.done() - progress.done)
        if bad:
            listed = "; ".join(f"line {row.line:,}: {row.reason}" for row in bad[:_SHOWN])
            _LOG.warning("%s rows could not be read and have no labels: %s", f"{len(bad):,}", listed)
        _LOG.info("%s rows: %s", f"{count:,}", self.output)
        return count

    def _source(self) -> SourceOptions:
        """Return how the table is read; of a data set, its documents are."""
        return SourceOptions("sqlite", table="documents") if self._is_data_set else self.source

    @property
    def _is_data_set(self) -> bool:
        return self.source.table is None and TableStore.is_data_set(self.table)

    def _kept(self, source: TableReader) -> list[int]:
        if self.keep is None:
            ids = column_of_ids(source.columns)
            return [] if ids is None else [ids]
        if list(self.keep) == ["all"]:
            return list(range(len(source.columns)))
        if missing := [name for name in self.keep if name not in source.columns]:
            raise InputError(
                f"{source.name} has no column {missing[0]!r}",
                expected="one of " + ", ".join(source.columns[:20]),
                fix="--keep NAME,… or --keep all",
            )
        return [source.columns.index(name) for name in self.keep]


def table_prediction(arguments: argparse.Namespace, trained: TrainedColumns | None) -> TablePrediction:
    """Return the prediction that a command line describes."""
    if arguments.save_pred_path is None:
        raise InputError("-o is missing", expected="a file for the labels of the table", fix="add -o labels.csv")
    keep = None if arguments.keep is None else arguments.keep.split(",")
    return TablePrediction(
        Path(arguments.table), Path(arguments.save_pred_path), source_options(arguments), text_columns(arguments), keep,
        arguments.only_topk or _LABELS if arguments.back_off is None else 1, trained, arguments.back_off,
    )  # fmt: skip


def _pieces(source: TableReader) -> Iterator[list[TableRow | BadRow]]:
    """Yield the rows in lists that fit into memory, however long their texts are."""
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

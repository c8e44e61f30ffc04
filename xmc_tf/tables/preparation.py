"""Stream a table into its database with limited memory; interrupted runs can be resumed."""

import logging
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.resuming import finished, resumes_from
from xmc_tf.common.progress import Progress
from xmc_tf.common.regular import existing_file
from xmc_tf.data.vocabularies import FORMATS as VOCABULARIES
from xmc_tf.store.files import content_hash
from xmc_tf.tables.column_choice import SAMPLE, choose_columns
from xmc_tf.tables.columns import ColumnOptions, Columns
from xmc_tf.tables.identity import content_of, store_contents
from xmc_tf.tables.label_cells import FASTTEXT, USUAL_UNLABELLED, spellings
from xmc_tf.tables.reading.line_formats import FastTextLines
from xmc_tf.tables.reading.options import SourceOptions
from xmc_tf.tables.reading.records import TableReader, TableRow, TwoTables
from xmc_tf.tables.reading.sources import open_source
from xmc_tf.tables.reading.structured import JsonLines
from xmc_tf.tables.runs import runs_of
from xmc_tf.tables.splits import SPLITS, SplitOptions, split_documents
from xmc_tf.tables.store import FORMAT, VERSION, TableStore
from xmc_tf.tables.writing import NO_LABEL, NO_TEXT, RowWriter, list_bad_rows, names_of_labels

_LOG = logging.getLogger(__name__)
COMMIT = 20_000  # rows between two points from which reading resumes
_LEAST_ROWS, _LETTERS = 1000, 1 << 25  # of the sample that columns are guessed from
_SHOWN = 5  # bad rows in a message
_SHOWN_CELLS, _LONGEST_CELL = 3, 80  # cells of labels that a summary may show, and their characters
_MOST_UNREADABLE, _MOST_UNUSABLE = 0.01, 0.5  # shares of the rows


@dataclass(frozen=True)
class PrepareOptions:
    """Options of :func:`prepare`.

    Example:
        >>> columns = ColumnOptions(text=["text"], labels="label")
        >>> store = prepare("data.csv", "other.sqlite", PrepareOptions(columns=columns, splits=SplitOptions(test=0.2)))

    Args:
        source: how to read the table.
        columns: the columns that hold texts and labels.
        splits: the shares of documents to hold out.
        max_bad_rows: maximum share of unusable rows. None: up to half of the rows may lack a text or a label, and up to
            1 % may be unreadable.
        test_table: table with the test documents, in the same format.
        test_label_lists: file with the labels of ``test_table``; required if ``source`` has label lists.
        label_names: file of label names, for tables whose labels are identifiers or numbers: lines of identifier, tab
            and name; one name per line; JSON lines with ``title``, ``name`` or ``label``; or a SKOS vocabulary.
        names_language: language of the names, if ``label_names`` is a vocabulary in several languages.
    """

    source: SourceOptions = field(default_factory=SourceOptions)
    columns: ColumnOptions = field(default_factory=ColumnOptions)
    splits: SplitOptions = field(default_factory=SplitOptions)
    max_bad_rows: float | None = None
    test_table: str | Path | None = None
    label_names: str | Path | None = None
    test_label_lists: str | Path | None = None
    names_language: str | None = None


def prepare(table: Any, database: str | Path, options: PrepareOptions | None = None) -> TableStore:
    """Read a table into a database, resume an interrupted run, or reuse a finished database.

    The table is read again if it or the choice of columns has changed; earlier training runs stay listed.

    Example:
        >>> store = prepare("data.csv", "data.sqlite")
        >>> model = XRLinear.train(store.texts("train"), store.labels("train"), names=store.names)

    Args:
        table: path of a file or folder, a DataFrame, or a list of dictionaries.
        database: path of the SQLite database.
        options: how to read the table, and which documents to hold out.

    Raises:
        InputError: a table that cannot be read, unknown columns, too many unusable rows, or another table's database.
    """
    options, database = options or PrepareOptions(), Path(database)
    source = _opened(table, options)
    if not source.columns:
        raise InputError(f"{source.name} has no columns", expected="columns of texts and labels")
    identity = _identity(source, options)
    sample, columns, guesses = list[list[Any]](), Columns((), 1), list[str]()
    if not source.nr_features:
        sample = _sample(source)
        columns, guesses = choose_columns(source.name, source.columns, sample, options.columns)
    if source.header_is_guessed and not source.header:
        guesses = [f"the first row is data, not a header ({len(source.columns)} columns; --header)", *guesses]
    labels = (one for row in sample if not columns.fault(row) for one in columns.labels_of(row))
    if isinstance(source, FastTextLines) and (kept := next((one for one in labels if "_" in one), None)):
        guesses = [*guesses, f"labels keep their '_', such as {kept!r}; only the prefix {FASTTEXT} is removed"]
    chosen = asdict(columns)
    if options.columns.ids is None:  # the names of the columns tell which one is guessed
        del chosen["ids"]
    wanted = {"source": identity, "columns": chosen}
    if options.names_language is not None and options.label_names is None:
        raise InputError("--names-language has no effect without --names-file", fix="leave it out")
    cells = [] if source.nr_features else [row[at] for row in sample for at in columns.label_places]
    cells = [str(cell)[:_LONGEST_CELL] for cell in cells if cell][:_SHOWN_CELLS]
    start = {**wanted, "rows_read": 0, "guesses": guesses, "nr_features": source.nr_features}
    start |= {"table": _name_of(table), "label_cells": cells}
    if database.is_file() and not database.stat().st_size:  # an empty file holds nothing to keep
        database.unlink()
    store = TableStore.open(database, write=True) if database.exists() else TableStore.create(database, **start)
    if not store.has_meta(**wanted):
        _begin_again(store, table, source.name, wanted, start)
    if store.meta("rows_read") == "all":
        same = store.has_meta(splits=asdict(options.splits))
        _LOG.info("data set: reused (%s)", "unchanged" if same else "unchanged, but divided again")
    else:
        _LOG.info("%s: %s", source.name, source.kind)
        for guess in guesses:
            _LOG.info("guessed: %s", guess)
        names = names_of_labels(source, options.label_names, options.names_language)
        spelled = _spelled(sample, columns, names) if columns.fold else None
        writer = RowWriter(store, columns, names, required=options.label_names is not None, spelled=spelled)
        rows = _read(source, writer, store)
        if _identity(source, options) != identity:
            _restart(store, {**start, "source": {"columns": source.columns}})
            raise InputError(f"{source.name} changed while it was read", fix="run this command again")
        writer.commit("all", rows)
        _say_what_changed(store)
        finished()
    _refuse_many_bad_rows(store, source.name, options.max_bad_rows)
    if not store.has_meta(splits=asdict(options.splits)):
        _split(store, options.splits)
    return store


def _spelled(sample: list[list[Any]], columns: Columns, names: Mapping[str, str] | None) -> dict[str, str]:
    """Return the spellings of labels that differ only in case or blanks: those that the first rows have most often."""
    if names is not None:
        raise InputError(
            "--fold-labels: the labels are identifiers, which have names", expected="labels without --names-file",
            fix="leave it out",
        )  # fmt: skip
    return spellings(label for row in sample if not columns.fault(row) for label in columns.labels_of(row))


def _name_of(table: Any) -> str | None:
    """Return the file name of a table, by which it is recognized after changes; None for a DataFrame."""
    return Path(os.path.abspath(table)).name if isinstance(table, str | Path) else None


def is_of_another(database: Path, table: Path) -> bool:
    """Return whether the database exists, but is not a data set of this table in its current or an earlier state."""
    if not os.path.lexists(database):
        return False
    if not TableStore.is_data_set(database):
        return True
    store, name = TableStore.open(database), _name_of(table)
    another = _is_another(store, name, {})
    if another and table.is_file():  # the table may have been renamed
        with suppress(InputError):  # of a table that cannot be opened without flags
            another = _is_another(store, name, {"content": content_of(open_source(table))})
    store.close()
    return another


def _is_another(store: TableStore, name: str | None, source: Mapping[str, Any]) -> bool:
    """Return whether a data set belongs to another table, which differs in both name and content."""
    before, named = store.meta("source") or {}, store.meta("table")
    if name is None:  # a DataFrame, which is recognized by its columns
        same_name = named is None and list(source.get("columns", ())) == before.get("columns")
    else:
        same_name = named == name
    return not same_name and source.get("content", "") != before.get("content")


def has_changed(store: TableStore, table: Path) -> bool:
    """Return whether a table exists, and has another content than when the data set was prepared from it."""
    before = (store.meta("source") or {}).get("content")
    with suppress(InputError):  # of a table that cannot be opened without flags
        return before is not None and table.is_file() and content_of(open_source(table)) != before
    return False


def _begin_again(store: TableStore, table: Any, name: str, wanted: Mapping[str, Any], start: Mapping[str, Any]) -> None:
    """Delete the documents but keep the runs; raise an error if the database belongs to another table."""
    unusable = store.meta("splits") is None and store.meta("rows_read") in (0, "all")
    if not unusable and _is_another(store, _name_of(table), wanted["source"]):
        of = store.meta("table")
        raise InputError(
            f"{store.path} holds the data set of another table" + (f", {of}" if of else ""),
            expected=f"a data set of {name}",
            fix=f"choose another file (train --data-set, prepare -o), or remove it with its runs: rm {store.path}",
        )
    before = store.meta("before")  # of an interrupted reading
    if store.meta("rows_read") == "all":
        before = {"source": store.meta("source"), "columns": store.meta("columns"), **store_contents(store)}
    _restart(store, start if before is None else {**start, "before": before})


def _restart(store: TableStore, start: Mapping[str, Any]) -> None:
    store.clear({"format": FORMAT, "version": VERSION, "reading": store.reading + 1, **start})


def _say_what_changed(store: TableStore) -> None:
    """Log why a table was read again, if it was."""
    before = store.meta("before")
    if before is None:
        return
    source, then = store.meta("source"), before["source"] or {}
    content = store_contents(store)
    changed = [name for name in content if content[name] != before[name]]
    changed += ["names"] * (source.get("label names") != then.get("label names"))
    changed += ["columns"] * (store.meta("columns") != before["columns"] or source["columns"] != then.get("columns"))
    changed += ["format"] * (source["kind"] != then.get("kind"))
    why = f"{', '.join(changed)} changed" if changed else "texts and labels are the same"
    runs = len(runs_of(store))
    listed = f"; its earlier runs ({runs:,}) stay listed, without their predictions" if runs else ""
    _LOG.info("data set: read again (%s)%s", why, listed)


def _opened(table: Any, options: PrepareOptions) -> TableReader:
    """Open the table, followed by the test table if there is one."""
    lists, test, test_lists = options.source.label_lists, options.test_table, options.test_label_lists
    if (test_lists is not None) != (lists is not None and test is not None):
        raise InputError(
            "--label-lists, --test-table and --test-label-lists do not fit together",
            expected="label lists of both tables, or of none",
            fix="use --test-label-lists together with --label-lists and --test-table",
        )
    source = open_source(table, options.source)
    if test is None:
        return source
    return TwoTables(source, open_source(test, replace(options.source, label_lists=test_lists)))


def _sample(source: TableReader) -> list[list[Any]]:
    """Return the first rows, from which columns are guessed: up to `SAMPLE`, or fewer if their texts are long."""
    found: list[list[Any]] = []
    letters = 0
    for row in source.records():
        if isinstance(row, TableRow):
            found.append(row.cells)
            letters += sum(len(cell) for cell in row.cells if isinstance(cell, str))
        if len(found) == SAMPLE or (len(found) >= _LEAST_ROWS and letters > _LETTERS):
            break
    return found


def _identity(source: TableReader, options: PrepareOptions) -> dict[str, Any]:
    """Return what identifies a table: its content. Its path is not among it, so the table can be moved."""
    about: dict[str, Any] = {"kind": source.kind, "columns": source.columns, "content": content_of(source)}
    if options.label_names is not None:
        existing_file(options.label_names, "label names")
        path = Path(options.label_names)
        about["label names"] = [content_hash(path), options.names_language]
        if path.suffix.lower() in VOCABULARIES:  # by which the same content is read in another way
            about["label names"].append(path.suffix.lower())
    elif source.label_names:
        about["label names"] = "of the table"
    return about


def _read(source: TableReader, writer: RowWriter, store: TableStore) -> int:
    """Read all rows and return their number. After each batch, the rows and their number so far are committed, so that
    the run can be resumed."""
    before = int(store.meta("rows_read"))
    if before:
        _LOG.info("resuming after row %s", f"{before:,}")
    with Progress(f"reading {Path(source.name).name}", source.size, source.unit) as progress:
        shown = rows = 0
        for rows, row in enumerate(source.records(), 1):
            if rows <= before:
                continue
            if source.in_test:
                writer.begin_test()
            writer.add(row)
            if rows % COMMIT == 0:
                writer.commit(rows)
                resumes_from(f"row {rows:,} of {source.name}")
            if rows % 1024 == 0:
                progress.add(source.done() - shown)
                shown = source.done()
    if rows == before == 0:
        raise InputError(f"{source.name} has no rows", expected="one document per row")
    if rows == 1 and isinstance(getattr(source, "source", source), JsonLines):
        raise InputError(
            f"{source.name} holds one JSON object", expected="one object per line, or an array of objects",
            fix="in pandas, write it by to_json(path, orient='records', lines=True)",
        )  # fmt: skip
    return rows


def _refuse_many_bad_rows(store: TableStore, name: str, most: float | None) -> None:
    """Raise an error if too many rows are unusable; otherwise list these rows in a file."""
    one = store.connection.execute
    reasons = Counter(dict(one("SELECT reason, count(*) FROM bad_rows GROUP BY reason").fetchall()))
    bad = sum(reasons.values())
    if not bad:
        return
    total = store.meta("rows")  # several may be one document
    unreadable = bad - sum(reasons[reason] for reason in (NO_TEXT, NO_LABEL))
    first = one("SELECT line, reason, start FROM bad_rows ORDER BY rowid LIMIT ?", (_SHOWN,)).fetchall()
    listed = "; ".join(f"line {line:,}: {reason}: {start[:40]!r}" for line, reason, start in first)
    counted = ", ".join(f"{count:,} × {reason}" for reason, count in reasons.most_common(3))
    limits = [("read", unreadable, _MOST_UNREADABLE), ("used", bad, _MOST_UNUSABLE)]
    for what, count, limit in limits if most is None else [("used", bad, most)]:
        if count > limit * total or count == total:
            raise InputError(
                f"{name}: {count:,} of {total:,} rows cannot be {what}",
                expected=f"at most {limit:.0%} (--max-bad-rows)"
                if count > limit * total
                else "a row with a text and a label",
                received=f"{counted}; {listed}",
                fix="check --separator, --encoding and the columns; or raise --max-bad-rows to leave those rows out",
            )
    where = list_bad_rows(store)
    few = bad == reasons[NO_LABEL] and bad <= USUAL_UNLABELLED * total
    _LOG.log(
        logging.INFO if few else logging.WARNING,
        "%s: %s of %s rows are left out: %s; the first: %s; all of them: %s", name, f"{bad:,}", f"{total:,}", counted,
        listed, where or f"the table bad_rows of {store.path}",
    )  # fmt: skip


def _split(store: TableStore, options: SplitOptions) -> None:
    keys = [key for (key,) in store.connection.execute("SELECT key FROM documents ORDER BY id")]
    if (test_from := store.meta("test_from")) is None:
        chosen = split_documents(keys, store.labels(), options)
    else:  # the source has test documents
        share = min(options.validation / (1 - options.test), 0.99)
        chosen = np.full(len(keys), SPLITS.index("test"), np.int8)
        rest = SplitOptions(share, 0.0, options.seed)
        chosen[:test_from] = split_documents(keys[:test_from], store.labels()[:test_from], rest)
    with store.writing() as write:
        rows = zip(chosen.tolist(), range(len(keys)), strict=True)
        write.executemany("UPDATE documents SET split = ? WHERE id = ?", rows)
        store.put_meta({"splits": asdict(options)})

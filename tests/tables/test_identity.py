"""A data set belongs to the content of its table: any change of any cell of any source is seen, and nothing else is."""

import gzip
import json
import os
import random
import sqlite3
import string
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from tests.refusals import refused
from xmc_tf.data import save_matrix
from xmc_tf.tables import preparation
from xmc_tf.tables.columns import ColumnOptions
from xmc_tf.tables.preparation import PrepareOptions, prepare
from xmc_tf.tables.reading.options import SourceOptions
from xmc_tf.tables.reading.sources import open_source
from xmc_tf.tables.splits import SplitOptions

NAMES = ["baking", "gardening", "sailing"]
ROWS = [[f"text {row} of many about {NAMES[row % 3]}", NAMES[row % 3]] for row in range(30)]


def _delimited(name, separator):
    def make(folder, rows):
        lines = [separator.join(row) + "\n" for row in [["text", "label"], *rows]]
        (folder / name).write_text("".join(lines))
        return folder / name

    return make


def _json_lines(folder, rows):
    lines = [json.dumps({"text": text, "labels": [label]}) + "\n" for text, label in rows]
    (folder / "data.jsonl").write_text("".join(lines))
    return folder / "data.jsonl"


def _json_array(folder, rows):
    (folder / "data.json").write_text(json.dumps(_records(folder, rows), indent=1))
    return folder / "data.json"


def _packed(folder, rows):
    plain = _json_lines(folder, rows)
    (folder / "data.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    return folder / "data.jsonl.gz"


def _packed_csv(folder, rows):
    plain = _delimited("plain.csv", ",")(folder, rows)
    (folder / "data.csv.gz").write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    return folder / "data.csv.gz"


def _zipped(folder, rows):
    plain = _delimited("plain.csv", ",")(folder, rows)
    with zipfile.ZipFile(folder / "data.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo("data.csv"), plain.read_bytes())
    return folder / "data.zip"


def _nested(folder, rows):
    lines = [json.dumps({"doc": {"text": text}, "labels": [{"name": label}]}) + "\n" for text, label in rows]
    (folder / "nested.jsonl").write_text("".join(lines))
    return folder / "nested.jsonl"


def _lines(name, form):
    def make(folder, rows):
        (folder / name).write_text("".join(form.format(*row, number=NAMES.index(row[1])) + "\n" for row in rows))
        return folder / name

    return make


def _sqlite(folder, rows):
    path = folder / "data.db"
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE IF EXISTS documents")
        database.execute("CREATE TABLE documents (text, label)")
        database.executemany("INSERT INTO documents VALUES (?, ?)", rows)
    database.close()
    return path


_OPEN = []  # writers of databases, whose changes stay in the file -wal while they are connected


def _sqlite_wal(folder, rows):
    path = folder / "wal.db"
    _OPEN.append(sqlite3.connect(path))
    _OPEN[-1].execute("PRAGMA journal_mode = WAL")
    with _OPEN[-1] as database:
        database.execute("CREATE TABLE IF NOT EXISTS documents (text, label)")
        database.execute("DELETE FROM documents")
        database.executemany("INSERT INTO documents VALUES (?, ?)", rows)
    return path


def _annif(ending, form):
    def make(folder, rows):
        (folder / "corpus").mkdir(exist_ok=True)
        for number, (text, label) in enumerate(rows):
            (folder / "corpus" / f"{number:03d}.txt").write_text(text)
            (folder / "corpus" / f"{number:03d}{ending}").write_text(form.format(label))
        return folder / "corpus"

    return make


def _pecos(folder, rows):
    (folder / "pecos").mkdir(exist_ok=True)
    cut = len(rows) - 1
    for part, some in (("trn", rows[:cut]), ("tst", rows[cut:])):
        (folder / "pecos" / f"X.{part}.txt").write_text("".join(text + "\n" for text, _ in some))
        Y = np.array([[name == label for name in NAMES] for _, label in some], np.float32)
        save_matrix(folder / "pecos" / f"Y.{part}.npz", csr_matrix(Y))
    (folder / "pecos" / "labels.txt").write_text("\n".join(NAMES) + "\n")
    return folder / "pecos"


def _mapping(_, rows):
    return {"text": [text for text, _ in rows], "label": [label for _, label in rows]}


def _records(_, rows):
    return [{"text": text, "label": label} for text, label in rows]


def _of_package(name):
    return lambda folder, rows: pytest.importorskip(name).DataFrame(_mapping(folder, rows))


def _arrow(folder, rows):
    return pytest.importorskip("pyarrow").table(_mapping(folder, rows))


def _parquet(folder, rows):
    pytest.importorskip("pyarrow.parquet").write_table(_arrow(folder, rows), folder / "data.parquet")
    return folder / "data.parquet"


FILES = {
    "CSV": _delimited("data.csv", ","), "TSV": _delimited("data.tsv", "\t"), "JSON lines": _json_lines,
    "JSON array": _json_array,
    "nested JSON lines": _nested, "packed CSV": _packed_csv, "zipped CSV": _zipped,
    "packed JSON lines": _packed, "Annif's TSV": _lines("annif.tsv", "{0}\t<{1}>"),
    "fastText": _lines("lines.txt", "__label__{1} {0}"), "PECOS's lines": _lines("pecos.txt", "{number}\t{0}"),
    "SQLite": _sqlite, "SQLite with a log": _sqlite_wal, "Parquet": _parquet,
    "Annif's folder of URIs": _annif(".tsv", "<http://{0}>\t{0}\n"),
    "Annif's folder of labels": _annif(".key", "{0}\n"), "PECOS's folder": _pecos,
}  # fmt: skip
FRAMES = {
    "dictionary": _mapping, "list of records": _records, "pandas": _of_package("pandas"),
    "Polars": _of_package("polars"), "Arrow": _arrow,
}  # fmt: skip


def _about(table, **options):
    options = PrepareOptions(**options)
    return preparation._identity(preparation._opened(table, options), options)


def _at_the_same_time(folder):
    """Set all times of change to one value, as copies and archives do."""
    for path in folder.rglob("*"):
        os.utime(path, ns=(10**18, 10**18))


_FEW = settings.default.max_examples // 5  # for each of many kinds of tables
_TEXTS = st.text(string.ascii_lowercase, min_size=4, max_size=8).map("text {}".format)
_ROWS = st.lists(st.tuples(_TEXTS, st.sampled_from(NAMES)).map(list), min_size=3, max_size=6)


@pytest.mark.parametrize("make", [*FILES.values(), *FRAMES.values()], ids=[*FILES, *FRAMES])
@settings(max_examples=_FEW)
@given(rows=_ROWS, at=st.integers(0, 5), column=st.integers(0, 1), letter=st.sampled_from("xyz"))
def test_every_changed_cell_is_seen(make, tmp_path_factory, rows, at, column, letter):
    folder = tmp_path_factory.mktemp("table")
    before = _about(make(folder, rows))
    _at_the_same_time(folder)
    assert _about(make(folder, rows)) == before
    changed = [list(row) for row in rows]
    cell = changed[at % len(rows)][column]
    # A text keeps its length; another label may be longer.
    changed[at % len(rows)][column] = NAMES[NAMES.index(cell) - 1] if column else cell[:-1] + letter
    table = make(folder, changed)
    _at_the_same_time(folder)
    assert (_about(table) == before) == (changed == rows)
    while _OPEN:
        _OPEN.pop().close()


def _with_names(folder, lines):
    (folder / "names.tsv").write_text("".join(f"{number}\t{name}\n" for number, name in enumerate(lines)))
    return _delimited("data.csv", ",")(folder, ROWS), {"label_names": folder / "names.tsv"}


def _with_lists(folder, lines):
    (folder / "texts.txt").write_text("a text\n" * len(lines))
    (folder / "lists.txt").write_text("".join(line + "\n" for line in lines))
    return folder / "texts.txt", {"source": SourceOptions(label_lists=folder / "lists.txt")}


def _with_test_table(folder, lines):
    test = _delimited("test.csv", ",")(folder, [["a text", line] for line in lines])
    return _delimited("data.csv", ",")(folder, ROWS), {"test_table": test}


def _with_test_lists(folder, lines):
    table, options = _with_lists(folder, ["a label"])
    (folder / "test.txt").write_text("a text\n" * len(lines))
    (folder / "test-lists.txt").write_text("".join(line + "\n" for line in lines))
    return table, {**options, "test_table": folder / "test.txt", "test_label_lists": folder / "test-lists.txt"}


@pytest.mark.parametrize("make", [_with_names, _with_lists, _with_test_table, _with_test_lists])
@settings(max_examples=_FEW)
@given(lines=st.lists(_TEXTS, min_size=2, max_size=6), at=st.integers(0, 5), letter=st.sampled_from("xyz"))
def test_every_changed_line_of_further_files_is_seen(make, tmp_path_factory, lines, at, letter):
    folder = tmp_path_factory.mktemp("table")
    changed = list(lines)
    changed[at % len(lines)] = changed[at % len(lines)][:-1] + letter
    found = []
    for content in (lines, lines, changed):
        table, options = make(folder, content)
        _at_the_same_time(folder)
        found.append(_about(table, **options))
    assert found[0] == found[1]
    assert (found[2] == found[0]) == (changed == lines)


@pytest.mark.parametrize(
    ("before", "after"),
    [("1", 1), (1, 1.0), (1, True), (None, ""), (None, 0), (["a"], "a"), (["a", "b"], ["ab"]), (2**70, 2**70 + 1),
     ([["a"], "b"], ["a", ["b"]]), ({"a": 1}, {"a": 2}), (b"a", "a"), ({"a", "b"}, {"a", "c"})],
)  # fmt: skip
def test_cells_of_any_type_are_told_apart(before, after):
    first, second = ({"text": ["a text", "another"], "label": ["x", cell]} for cell in (before, after))
    assert _about(first) != _about(second)
    assert _about(first) == _about({name: list(cells) for name, cells in first.items()})


def test_cells_do_not_run_together():
    assert _about({"a": ["xy", "z"], "b": ["", "v"]}) != _about({"a": ["x", "z"], "b": ["y", "v"]})
    assert _about({"a": ["x"], "b": ["y"]}) != _about({"a": ["x"], "c": ["y"]})


def test_every_part_of_a_large_file_is_read(tmp_path):
    """Hashes of a beginning, a middle and an end missed corrections between them."""
    table, draw = tmp_path / "data.csv", random.Random(0)
    table.write_bytes(b"text,label\n" + b"a text of a row,baking\n" * 400_000)
    content, before = bytearray(table.read_bytes()), _about(table)
    places = [11 + 23 * draw.randrange(400_000) for _ in range(8)] + [11, len(content) - 23]
    for place in places:
        content[place + 16 : place + 22] = b"sailin"
        table.write_bytes(content)
        _at_the_same_time(tmp_path)
        assert _about(table) != before
        content[place + 16 : place + 22] = b"baking"


@pytest.mark.parametrize("make", [*FILES.values(), *FRAMES.values()], ids=[*FILES, *FRAMES])
def test_a_corrected_table_replaces_its_data_set(tmp_path, make, caplog):
    caplog.set_level("INFO")
    database = tmp_path / "out" / "data.sqlite"
    database.parent.mkdir()

    def read(rows, where=database):
        caplog.clear()
        store = prepare(make(tmp_path, rows), where)
        _at_the_same_time(tmp_path)
        names, Y = store.names, store.labels()
        texts = [text for (text,) in store.connection.execute("SELECT text FROM documents ORDER BY id")]
        return {text: {names[at] for at in Y[row].indices} for row, text in enumerate(texts)}

    first = read(ROWS)
    assert {text: {NAMES[int(name)] if name.isdigit() else name.removeprefix("http://") for name in names}
            for text, names in first.items()} == {text: {label} for text, label in ROWS}  # fmt: skip
    (tmp_path / "again").mkdir()
    source = open_source(make(tmp_path / "again", ROWS))
    passes = [(list(source.records()), source.read) for _ in range(2)]
    assert passes[0] == passes[1], "the progress begins again"
    assert "data set: " not in caplog.text
    assert read(ROWS) == first
    assert "data set: reused (unchanged)" in caplog.text
    corrected = [[text, NAMES[0] if row == 17 else label] for row, (text, label) in enumerate(ROWS)]
    found = read(corrected)
    assert "data set: read again (labels changed)" in caplog.text
    assert found == read(corrected, database.with_name("new.sqlite")) != first
    corrected[4][0] = corrected[4][0].replace("4", "5")
    assert read(corrected) == read(corrected, database.with_name("newer.sqlite")) != found
    while _OPEN:
        _OPEN.pop().close()


def test_the_reason_for_reading_again_is_said(tmp_path, caplog):
    caplog.set_level("INFO")
    database, table = tmp_path / "out.sqlite", _delimited("data.csv", ",")(tmp_path, [[a, b, "0"] for a, b in ROWS])
    table.write_text(table.read_text().replace("text,label", "text,label,number", 1))
    (tmp_path / "names.tsv").write_text("".join(f"{name}\t{name} of all kinds\n" for name in NAMES))
    names = {"label_names": tmp_path / "names.tsv"}

    def said(**options):
        caplog.clear()
        prepare(table, database, PrepareOptions(**options)).close()
        return [record.getMessage() for record in caplog.records if "data set: " in record.getMessage()]

    assert said() == []
    assert said(splits=SplitOptions(test=0.2)) == ["data set: reused (unchanged, but divided again)"]
    assert said(**names) == ["data set: read again (labels, names changed)"]
    (tmp_path / "names.tsv").write_text("".join(f"{name}\t{name} of any kind\n" for name in NAMES))
    assert said(**names) == ["data set: read again (labels, names changed)"]
    assert said(**names) == ["data set: reused (unchanged)"]
    columns = ColumnOptions(text=["text", "number"])
    assert said(**names, columns=columns) == ["data set: read again (texts, columns changed)"]
    table.write_text(table.read_text().replace("text 3 ", "text 03 "))
    assert said(**names, columns=columns) == ["data set: read again (texts changed)"]
    table.write_text(table.read_text().replace(",", ";"))
    assert said(**names, columns=columns) == ["data set: read again (format changed)"]
    table.write_text(table.read_text() + "\n")
    assert said(**names, columns=columns) == ["data set: read again (texts and labels are the same)"]


def test_a_reading_that_was_interrupted_remembers_what_it_replaced(tmp_path, caplog, monkeypatch):
    caplog.set_level("INFO")
    table = _delimited("data.csv", ",")(tmp_path, ROWS)
    prepare(table, tmp_path / "data.sqlite").close()
    table.write_text(table.read_text().replace("sailing\n", "baking\n"))
    monkeypatch.setattr(preparation, "_read", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        prepare(table, tmp_path / "data.sqlite")
    monkeypatch.undo()
    prepare(table, tmp_path / "data.sqlite").close()
    assert "data set: read again (labels changed)" in caplog.text


def test_a_table_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    table, read = _delimited("data.csv", ",")(tmp_path, ROWS), preparation._read

    def change(*arguments):
        rows = read(*arguments)
        table.write_text(table.read_text().replace("sailing\n", "boating\n"))
        return rows

    monkeypatch.setattr(preparation, "_read", change)
    refused(r"data\.csv changed while it was read", prepare, table, tmp_path / "data.sqlite")
    monkeypatch.undo()
    table.write_text(table.read_text().replace("boating\n", "sailing\n"))
    assert sorted(prepare(table, tmp_path / "data.sqlite").names) == NAMES


def test_a_frame_of_other_columns_is_another_table(tmp_path):
    prepare(_mapping(None, ROWS), tmp_path / "data.sqlite").close()
    other = {"title": [f"the {text}" for text, _ in ROWS], "label": [label for _, label in ROWS]}
    refused("the data set of another table", prepare, other, tmp_path / "data.sqlite")

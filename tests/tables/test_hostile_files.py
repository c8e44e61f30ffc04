"""Encodings, and files that are no tables, are damaged, endless, or hold SQL, are read as they are or refused."""

import bz2
import gzip
import json
import lzma
import shutil
import sqlite3

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.files import read_only
from tests.refusals import refused
from tests.tables.test_preparation import ALL_TRAINING, _content, _csv
from xmc_tf.common.errors import InputError
from xmc_tf.data import load_matrix, load_names, save_matrix
from xmc_tf.tables.columns import ColumnOptions
from xmc_tf.tables.preparation import PrepareOptions, prepare
from xmc_tf.tables.reading.options import SourceOptions
from xmc_tf.tables.reading.sources import open_source
from xmc_tf.tables.reading.text_files import text_encoding
from xmc_tf.tables.store import TableStore


def test_a_file_in_utf8_with_a_stray_byte_stays_utf8(tmp_path, caplog):
    path = tmp_path / "data.csv"
    content = "text,label\n" + "Bäume und Wälder,Öko\n" * 40
    path.write_bytes(content.encode() + b"stray \xff,x\n")
    assert text_encoding(path) == "utf-8"
    assert "1 of 121 characters outside ASCII are not UTF-8" in caplog.text
    path.write_bytes(content.encode("latin-1"))
    assert text_encoding(path) == "cp1252"
    assert "is read as Windows-1252 (--encoding)" in caplog.text


def test_documents_of_a_folder_that_are_no_utf8_are_counted(tmp_path, caplog):
    for name, content in (("a", "Bäume".encode()), ("b", "Wälder".encode("latin-1"))):
        (tmp_path / f"{name}.txt").write_bytes(content)
        (tmp_path / f"{name}.key").write_text("a label\n")
    source = open_source(tmp_path)
    assert [row.cells[0] for _ in range(2) for row in source.records()] == ["Bäume", "W\ufffdlder"] * 2
    assert (
        caplog.text.count("characters of 1 documents are not UTF-8 and become U+FFFD; the first document: b.txt") == 1
    )


def test_a_folder_of_texts_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "X.trn.txt").write_bytes(b"W\xe4lder\n" * 12)
    save_matrix(tmp_path / "Y.trn.npz", csr_matrix(np.ones((12, 1), np.float32)))
    refused(r"X\.trn\.txt is not UTF-8\n.*\n.*12 of 12 lines", open_source, tmp_path)


def test_the_encoding_of_a_gzipped_file_can_be_set(tmp_path):
    path = tmp_path / "data.jsonl.gz"
    lines = [json.dumps({"text": f"Bäume {row}", "label": "Öko"}, ensure_ascii=False) + "\n" for row in range(20)]
    path.write_bytes(gzip.compress("".join(lines).encode("latin-1")))
    store = prepare(
        path, tmp_path / "out.sqlite", PrepareOptions(SourceOptions(encoding="latin-1"), splits=ALL_TRAINING)
    )
    assert store.names == ["Öko"]


@pytest.mark.parametrize("name", ["rot13", "zlib", "idna", "punycode", "undefined", "base64", "no-such"])
def test_codecs_that_are_no_encodings_of_texts(tmp_path, name):
    with pytest.raises(InputError, match="unknown encoding"):
        prepare(_csv(tmp_path), tmp_path / "out.sqlite", PrepareOptions(SourceOptions(encoding=name)))


def test_computed_columns_and_texts_of_other_encodings_in_sqlite(tmp_path):
    with sqlite3.connect(tmp_path / "source.db") as database:
        database.execute("CREATE TABLE documents (raw, text GENERATED ALWAYS AS (lower(raw)), label)")
        database.execute("INSERT INTO documents (raw, label) VALUES ('A Text', CAST(x'4cff' AS TEXT))")
    database.close()
    source = open_source(tmp_path / "source.db")
    assert source.columns == ["raw", "text", "label"]
    assert [row.cells for row in source.records()] == [["A Text", "a text", "L\ufffd"]]


@pytest.mark.parametrize("option", [{"encoding": "latin-1"}, {"separator": ";"}, {"header": True}, {"kind": "csv"}])
def test_options_of_files_are_refused_for_folders(tmp_path, option):
    (tmp_path / "a.txt").write_text("a text")
    (tmp_path / "a.key").write_text("a label\n")
    assert next(open_source(tmp_path, SourceOptions("annif-folder")).records()).cells == ["a text", ["a label"]]
    refused("cannot be used with .*\n.*\n.*in the format annif-folder", open_source, tmp_path, SourceOptions(**option))


def test_an_endless_view_is_refused(tmp_path, monkeypatch):
    endless = "WITH RECURSIVE n(text) AS (SELECT 1 UNION ALL SELECT text + 1 FROM n) SELECT text, 'a' AS label FROM n"
    for name in ("documents", "meta"):
        with sqlite3.connect(tmp_path / f"{name}.db") as database:
            database.execute(f"CREATE VIEW {name} AS {endless}")
    monkeypatch.setattr("xmc_tf.tables.reading.structured.MOST_SECONDS", 0.2)
    refused("'documents' cannot be counted", prepare, tmp_path / "documents.db", tmp_path / "out.sqlite")
    assert not TableStore.is_data_set(tmp_path / "meta.db")
    refused("not a data set", TableStore.open, tmp_path / "meta.db")


def test_cells_and_lines_without_an_end_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("xmc_tf.tables.reading.text_files.LARGEST_CELL", 10_000)
    monkeypatch.setattr("xmc_tf.tables.reading.structured.LARGEST_CELL", 10_000)
    with sqlite3.connect(tmp_path / "large.db") as database:
        database.execute("CREATE VIEW documents AS SELECT CAST(zeroblob(20000) AS TEXT) AS text, 'x' AS label")
    database.close()
    with pytest.raises(InputError, match=r"large\.db.*string or blob too big"):
        list(open_source(tmp_path / "large.db").records())
    path = tmp_path / "data.txt"
    for kind in ("jsonl", "lines", "fasttext", "csv"):
        path.write_text("text,label\na,b\n" + "a" * 20_000 + "\n")
        with pytest.raises(InputError, match=r"data\.txt, line 3 is too long"):
            list(open_source(path, SourceOptions(kind=kind)).records())
    for read in (open_source, load_matrix, load_names):
        with pytest.raises(OSError, match="Input/output error") as error:
            read("/proc/self/mem")
        assert error.value.filename == "/proc/self/mem"


def test_damaged_databases_and_parquet_files_are_named(tmp_path):
    path = tmp_path / "data.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE documents (text, label)")
        database.execute("CREATE VIEW others AS SELECT * FROM missing")
        database.executemany("INSERT INTO documents VALUES (?, 'x')", [("words " * 50,)] * 1000)
    database.close()
    refused(r"data\.db cannot be read", open_source, path, SourceOptions(table="others"))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] + b"\xff" * (len(whole) // 2))
    refused(r"data\.db.*malformed", open_source, path, SourceOptions(table="documents"))
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "data.parquet"
    columns = {"text": [f"{row} words" for row in range(5000)], "label": ["x"] * 5000}
    parquet.write_table(pytest.importorskip("pyarrow").table(columns), path, use_dictionary=False)
    whole = path.read_bytes()
    path.write_bytes(whole[:60] + b"\xff" * 500 + whole[560:])
    with pytest.raises(InputError, match=r"data\.parquet is damaged after row 0"):
        list(open_source(path).records())


def test_keys_that_few_objects_have_are_ignored(tmp_path, caplog):
    """Each row once had a cell for each key of all rows."""
    rows = [{f"key {row}": "words", "text": f"text {row}", "label": "x"} for row in range(1500)]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert open_source(path).columns == ["text", "label"]
    assert "1,000 of 1,002 keys are ignored, because fewer than 1 % of the objects have them" in caplog.text
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows[:150]))
    assert len(open_source(path).columns) == 152


def test_a_gzip_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("xmc_tf.tables.reading.text_files.LEAST_BOMB", 1 << 20)
    path = tmp_path / "bomb.jsonl.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(64):
            file.write(b'{"text": "' + b"a" * 1_000_000 + b'", "label": "b"}\n')
    refused("unpacks to more than 100 times its size", prepare, path, tmp_path / "out.sqlite")


def test_names_of_tables_and_columns_cannot_inject_sql(tmp_path):
    path = tmp_path / "evil.db"
    name = 'a"; DROP TABLE b; --'
    with sqlite3.connect(path) as database:
        quoted = name.replace('"', '""')
        database.execute(f'CREATE TABLE "{quoted}" (text, "{quoted}")')
        database.execute(f'INSERT INTO "{quoted}" VALUES (?, ?)', ("a text'; DROP TABLE documents; --", "x'); --"))
        database.execute("CREATE TABLE b (c)")
    options = PrepareOptions(SourceOptions(table=name), ColumnOptions(labels=name), ALL_TRAINING)
    store = prepare(path, tmp_path / "out.sqlite", options)
    assert _content(store) == {"a text'; DROP TABLE documents; --": {"x'); --"}}
    assert open_source(path, SourceOptions(table="b")).columns == ["c"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04....", "Excel"),
        (b"PK\x05\x06" + bytes(18), "another archive"),
        (bz2.compress(b"text,label\na,b\n"), "another archive"),
        (lzma.compress(b"text,label\na,b\n"), "another archive"),
        (gzip.compress(b"data.csv".ljust(257, b"\0") + b"ustar\x00text,label\na,b\n", mtime=0), "another archive"),
        (b"text,label\n", "has no rows"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"\xff\xfe\n\0", "is empty"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0\0\0\1\0\x08\x02\0\0\0\xd3\x10?1IDATx" * 9, "is not a text file"),
        (b'[{"text": "a", "label": "b"}, {"te', ["holds no JSON objects", "not JSON: line 1, column 32", "cut off"]),
        (b"PAR1 and nothing more", "Parquet"),
        (b"SQLite format 3\x00 and nothing more", "SQLite"),
    ],
)
def test_files_that_are_no_tables(tmp_path, content, words):
    path = tmp_path / "data.csv"
    path.write_bytes(content)
    refused(words, prepare, path, tmp_path / "out.sqlite")


def test_a_database_that_cannot_be_opened_is_named(tmp_path):
    path = _csv(tmp_path)
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"SQLite format 3\x00 and nothing more")
    refused(r"damaged\.sqlite cannot be opened", prepare, path, damaged)
    refused(r"nowhere does not exist", prepare, path, tmp_path / "nowhere" / "out.sqlite")


def test_what_a_read_only_folder_holds_is_read_and_data_sets_go_elsewhere(tmp_path):
    place = tmp_path / "closed"
    place.mkdir()
    table, database = _csv(place), place / "wal.db"
    prepare(table, place / "data.sqlite").close()
    writer = sqlite3.connect(database)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE rows (text, label)")
    writer.execute("INSERT INTO rows VALUES ('a text', 'a label')")
    writer.commit()
    shutil.copy(database, place / "cut.db")
    shutil.copy(place / "wal.db-wal", place / "cut.db-wal")
    writer.close()
    assert sorted(path.name for path in place.glob("*db*")) == ["cut.db", "cut.db-wal", "wal.db"]
    with read_only(place):
        assert [row.cells for row in open_source(database).records()] == [["a text", "a label"]]
        assert TableStore.open(place / "data.sqlite").count() == 60
        refused(r"its log cut\.db-wal holds rows(.|\n)*copy it together with", open_source, place / "cut.db")
        for name in ("data.sqlite", "new.sqlite"):  # one that is there, which would record runs, and a new one
            refused(rf"{name} cannot be (.|\n)*--data-set FILE", prepare, table, place / name)
        assert prepare(table, tmp_path / "elsewhere.sqlite").count() == 60

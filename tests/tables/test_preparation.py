"""From tables of all kinds to a data set, resumed after an interruption."""

import csv
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from unittest import mock

import pytest

from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.models.documents import documents_of_source
from xmc_tf.prepare import main
from xmc_tf.tables import preparation, writing
from xmc_tf.tables.columns import ColumnOptions, Columns
from xmc_tf.tables.preparation import PrepareOptions, prepare
from xmc_tf.tables.reading.folders import AnnifFolder
from xmc_tf.tables.reading.records import TableRow
from xmc_tf.tables.reading.sources import open_source
from xmc_tf.tables.runs import Run, record_run, runs_of
from xmc_tf.tables.splits import SplitOptions
from xmc_tf.tables.store import TableStore
from xmc_tf.tables.summary import summary_of
from xmc_tf.tables.table_flags import database_of

ROWS = [(f"text number {n} of many", ["even" if n % 2 == 0 else "odd", f"by {n % 3}"]) for n in range(60)]
ALL_TRAINING = SplitOptions(0, 0)


def _csv(folder, rows=ROWS, name="data.csv"):
    with (folder / name).open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *((text, "|".join(labels)) for text, labels in rows)])
    return folder / name


def _content(store):
    Y, names = store.labels(), store.names
    texts = [text for (text,) in store.connection.execute("SELECT text FROM documents ORDER BY id")]
    return {text: {names[at] for at in Y[row].indices} for row, text in enumerate(texts)}


def _sqlite(folder):
    path = folder / "source.db"
    with sqlite3.connect(path) as database:
        database.execute('CREATE TABLE "my ""table" (text, label)')
        database.executemany('INSERT INTO "my ""table" VALUES (?, ?)', [(t, "|".join(y)) for t, y in ROWS])
    return path


def _json_lines(folder):
    path = folder / "data.jsonl"
    path.write_text("".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in ROWS))
    return path


def test_texts_and_labels_of_a_split_belong_together(tmp_path):
    store = prepare(_csv(tmp_path), tmp_path / "out.sqlite")
    names, expected = store.names, {text: set(labels) for text, labels in ROWS}
    for split in ("train", "validation", "test"):
        texts, Y = store.texts(split), store.labels(split)
        assert len(texts) == Y.shape[0] == store.count(split)
        for row, text in enumerate(texts):
            assert {names[at] for at in Y[row].indices} == expected[text]
        assert texts[3] == list(texts)[3] == list(texts[2:5])[1]
    counts = dict(store.connection.execute("SELECT name, documents FROM labels"))
    assert counts["even"] == 30


def test_one_row_per_label(tmp_path):
    path = tmp_path / "pairs.csv"
    with path.open("w", newline="") as file:
        rows = [(number, text, label) for number, (text, labels) in enumerate(ROWS) for label in labels]
        csv.writer(file).writerows([("doc", "text", "label"), *rows])
    options = PrepareOptions(columns=ColumnOptions(document="doc"), splits=ALL_TRAINING)
    store = prepare(path, tmp_path / "out.sqlite", options)
    assert _content(store) == {text: set(labels) for text, labels in ROWS}
    count = sum(len(labels) for _, labels in ROWS)
    path.write_text(path.read_text() + "99,,even\n")
    with pytest.raises(InputError, match=f"1 of {count + 1} rows cannot be used"):
        prepare(path, tmp_path / "out.sqlite", PrepareOptions(columns=ColumnOptions(document="doc"), max_bad_rows=0))


class _InterruptedError(Exception):
    pass


def test_an_interrupted_run_continues(tmp_path, monkeypatch):
    path, read = _csv(tmp_path), []
    monkeypatch.setattr(preparation, "COMMIT", 7)
    original = writing.RowWriter.add

    def add(self, row):
        read.append(row)
        if len(read) == 31:
            raise _InterruptedError
        original(self, row)

    monkeypatch.setattr(writing.RowWriter, "add", add)
    with pytest.raises(_InterruptedError):
        prepare(path, tmp_path / "out.sqlite")
    store = prepare(path, tmp_path / "out.sqlite")
    assert len(read) == 31 + 60 - 28  # what was complete is not written again
    monkeypatch.undo()
    whole = prepare(path, tmp_path / "whole.sqlite")
    dumps = [list(one.connection.iterdump()) for one in (store, whole)]
    assert dumps[0] == dumps[1]


def test_a_configuration_has_flags_as_keys(tmp_path, capsys):
    table = tmp_path / "data.csv"
    table.write_text("title,body,topic\n" + "".join(f"title {n},text {n} of many,t{n % 3}\n" for n in range(60)))
    columns = ["--text-column", "title,body", "--label-column", "topic"]
    main([str(table), "-o", str(tmp_path / "flags.sqlite"), *columns, "--json"])
    expected = capsys.readouterr().out
    (tmp_path / "c.toml").write_text(
        f'table = "{table}"\noutput = "{tmp_path}/c.sqlite"\n'
        'text_column = ["title", "body"]\nlabel-column = "topic"\njson = true\n'
    )
    main([str(tmp_path / "c.toml")])
    assert capsys.readouterr().out == expected


def test_another_table_does_not_overwrite_a_data_set(tmp_path):
    prepare(_csv(tmp_path), tmp_path / "out.sqlite")
    with pytest.raises(InputError, match=r"the data set of another table, data\.csv"):
        prepare(_csv(tmp_path, ROWS[:20], "other.csv"), tmp_path / "out.sqlite")


def test_tables_with_different_endings_have_data_sets_of_their_own(tmp_path):
    table, other = _csv(tmp_path), _json_lines(tmp_path)
    prepare(table, database_of(table)).close()
    assert database_of(table).name == "data.sqlite"
    assert database_of(other).name == "data.jsonl.sqlite"
    two = tmp_path / "data.db"  # which cannot be opened without --table
    with closing(sqlite3.connect(two)) as database:
        database.executescript("CREATE TABLE a (text, label); CREATE TABLE b (text, label)")
    assert database_of(two).name == "data.db.sqlite"
    table.rename(tmp_path / "moved.csv")
    database_of(table).rename(tmp_path / "moved.sqlite")
    assert database_of(tmp_path / "moved.csv").name == "moved.sqlite"  # it has the same rows


def test_an_interrupted_start_leaves_nothing_in_the_way(tmp_path, monkeypatch):
    """What SQLite has written before a data set can be recognised once made every later run fail."""
    table = _csv(tmp_path)

    def put(*_):
        raise _InterruptedError

    monkeypatch.setattr(TableStore, "put_meta", put)
    with pytest.raises(_InterruptedError):
        prepare(table, tmp_path / "out.sqlite")
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]
    monkeypatch.undo()
    (tmp_path / ".out.xmc_tf-abcd1234.sqlite").write_bytes(b"")  # of a run that was killed
    (tmp_path / "out.sqlite").write_bytes(b"")
    prepare(table, tmp_path / "out.sqlite").close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "out.sqlite"]


def test_another_database_is_not_touched(tmp_path):
    mine = _sqlite(tmp_path)
    before = mine.read_bytes()
    refused("not a data set", prepare, _csv(tmp_path), mine)
    assert mine.read_bytes() == before


def test_too_many_bad_rows_stop_the_run_and_few_are_listed(tmp_path):
    path = _csv(tmp_path)
    path.write_text(path.read_text() + "only a text\n,a label\nno label,\n")
    refused([r"1 of 63 rows cannot be read", "line 62: 1 cells, expected 2"], prepare, path, tmp_path / "out.sqlite")
    refused(r"3 of 63 rows cannot be used", prepare, path, tmp_path / "out.sqlite", PrepareOptions(max_bad_rows=0.01))
    store = prepare(path, tmp_path / "out.sqlite", PrepareOptions(max_bad_rows=0.1))
    assert summary_of(store).bad_rows == {"1 cells, expected 2": 1, "no label": 1, "no text": 1}
    assert [line for (line,) in store.connection.execute("SELECT line FROM bad_rows")] == [62, 63, 64]
    path.write_text("text,label\n" + 9 * "no label,\n")
    refused("9 of 9 rows cannot be used", prepare, path, tmp_path / "out.sqlite", PrepareOptions(max_bad_rows=1.0))


def test_rows_without_a_label_are_left_out_and_listed(tmp_path, caplog):
    path = _csv(tmp_path)
    path.write_text(path.read_text() + "".join(f"text {row},\n" for row in range(10)))
    store = prepare(path, tmp_path / "out.sqlite")
    assert store.count() == 60
    assert "10 of 70 rows are left out: 10 × no label" in caplog.text
    caplog.clear()
    few = _csv(tmp_path, [*ROWS, ("a text", [])], "few.csv")
    assert prepare(few, tmp_path / "few.sqlite").count() == 60
    assert not caplog.text  # a few rows without labels are usual
    listed = (tmp_path / "out.left-out.csv").read_text().splitlines()
    assert listed[:2] == ["line,reason,start", "62,no label,text 0"]
    assert len(listed) == 11
    path.write_text("text,label\n" + "".join(f"text {row},{'a' * (row % 3 == 0)}\n" for row in range(60)))
    refused(r"40 of 60 rows cannot be used\n.*at most 50%", prepare, path, tmp_path / "most.sqlite")


def test_the_list_of_rows_replaces_no_file_of_others(tmp_path, caplog):
    caplog.set_level("INFO")
    (tmp_path / "out.left-out.csv").write_text("mine\n")
    path = _csv(tmp_path)
    path.write_text(path.read_text() + "no label,\n")
    prepare(path, tmp_path / "out.sqlite")
    assert (tmp_path / "out.left-out.csv").read_text() == "mine\n"
    assert "the table bad_rows of" in caplog.text


def test_spellings_of_a_label_are_one_also_after_an_interruption(tmp_path, monkeypatch, capsys):
    labels = ["Baking|herbs", "baking", " baking ", "herbs|Herbs", "nan", "HERBS|-"]
    table = _csv(tmp_path, [(f"text {row}", [label]) for row, label in enumerate(labels * 4)])
    main([str(table), "-o", str(tmp_path / "plain.sqlite")])
    assert "4 of 24 cells of labels are empty: they hold 'nan' (--keep-na-labels)" in capsys.readouterr().out
    assert TableStore.open(tmp_path / "plain.sqlite").names == ["Baking", "herbs", "baking", "Herbs", "HERBS"]
    flags = ["--fold-labels", "--keep-na-labels", "--label-separator", "|"]
    main([str(table), "-o", str(tmp_path / "whole.sqlite"), *flags])
    monkeypatch.setattr(preparation, "COMMIT", 5)
    rows, add = mock.Mock(side_effect=[None] * 12 + [_InterruptedError]), writing.RowWriter.add
    monkeypatch.setattr(writing.RowWriter, "add", lambda self, row: (rows(), add(self, row)))
    with pytest.raises(_InterruptedError):
        main([str(table), "-o", str(tmp_path / "cut.sqlite"), *flags])
    monkeypatch.setattr(writing.RowWriter, "add", add)
    main([str(table), "-o", str(tmp_path / "cut.sqlite"), *flags])
    stores = [TableStore.open(tmp_path / name) for name in ("whole.sqlite", "cut.sqlite")]
    assert [store.names for store in stores] == [["baking", "herbs", "nan", "-"]] * 2
    assert _content(stores[0]) == _content(stores[1])
    trained = stores[1].columns
    assert trained.label_ids == stores[0].columns.label_ids == {"Baking": "baking", "Herbs": "herbs", "HERBS": "herbs"}
    again = documents_of_source(open_source(table), ColumnOptions(trained=trained), labelled=True)[1]
    assert again[:6] == [["baking", "herbs"], ["baking"], ["baking"], ["herbs"], ["nan"], ["herbs", "-"]]
    (tmp_path / "names.tsv").write_text("baking\tBaking\n")
    named = [str(table), "-o", str(tmp_path / "named.sqlite"), "--names-file", str(tmp_path / "names.tsv")]
    refused("--fold-labels: the labels are identifiers", main, [*named, "--fold-labels"])


def test_labels_of_fasttext_keep_their_underscores(tmp_path, capsys):
    (tmp_path / "lines.txt").write_text("__label__machine_learning a text about it\n" * 3)
    main([str(tmp_path / "lines.txt")])
    assert "labels keep their '_', such as 'machine_learning'" in capsys.readouterr().out


def test_names_by_identifier_are_remembered(tmp_path):
    names = tmp_path / "names.tsv"
    names.write_text("gnd:1\tbaking\ngnd:2\tgardening\ngnd:3\tunused\n")
    rows = [(f"text {row}", [f"gnd:{1 + row % 2}"]) for row in range(20)]
    store = prepare(_csv(tmp_path, rows), tmp_path / "out.sqlite", PrepareOptions(label_names=names))
    assert sorted(store.names) == ["baking", "gardening"]
    assert store.columns.to_json() == {
        "texts": ["text"], "labels": "label", "separator": "", "document": None,
        "label_ids": {"gnd:1": "baking", "gnd:2": "gardening"},
    }  # fmt: skip


def test_names_in_a_folder_of_annif_are_names_of_labels(tmp_path, caplog):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for row in range(20):
        (folder / f"{row:02}.txt").write_text(f"text {row}")
        # Two subjects have one name, and one has none.
        (folder / f"{row:02}.tsv").write_text([f"<uri:{row % 5}>\tMercury\n", "<uri:2>\n"][row % 5 == 2])
        if row % 5 > 2:
            (folder / f"{row:02}.tsv").write_text(f"<uri:{row % 5}>\tsubject {row % 5}\n")
    with mock.patch.object(AnnifFolder, "_names", {}):
        assert "uri:0" in prepare(folder, tmp_path / "out.sqlite").names
    caplog.set_level("INFO")
    store = prepare(folder, tmp_path / "out.sqlite")
    assert "read again (labels, names changed)" in caplog.text
    assert sorted(store.names) == ["Mercury", "Mercury (uri:1)", "subject 3", "subject 4", "uri:2"]
    (folder / "20.txt").write_text("text 20")
    (folder / "20.tsv").write_text("<uri:1>\tMercury\n<uri:5>\tMercury\n<uri:6>\tanother\n")
    options = ColumnOptions(trained=store.columns)
    labels = documents_of_source(open_source(folder), options, labelled=True)[1]
    assert labels[-1] == ["Mercury (uri:1)", "Mercury (uri:5)", "another"]
    without = ColumnOptions(trained=replace(store.columns, label_ids={}))
    assert documents_of_source(open_source(folder), without, labelled=True)[1][-1] == ["uri:1", "uri:5", "uri:6"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1\tbaking\n2\n3\tsailing\n", "most lines have a tab after an identifier, line 2 has none"),
        ("id,name\n0,baking\n1,sailing\n2,soup\n", "a comma after an identifier, line 1 has none"),
        ('"0";"baking"\n"1";"sailing"\n', "most lines have a comma after an identifier\n"),
    ],
)
def test_names_that_would_be_those_of_other_labels_are_refused(tmp_path, content, message):
    (tmp_path / "names.txt").write_text(content)
    refused(message, writing.load_label_names, tmp_path / "names.txt")


def test_names_may_be_in_any_encoding(tmp_path):
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "cp1252"):
        (tmp_path / "names.txt").write_bytes("0\tÖko\r\n1\tBäume, Wälder\r\n".encode(encoding))
        assert writing.load_label_names(tmp_path / "names.txt") == {"0": "Öko", "1": "Bäume, Wälder"}


def test_label_names_stay_distinct(tmp_path):
    (tmp_path / "names.txt").write_text("X\nX (2)\nX\n")
    names = writing.load_label_names(tmp_path / "names.txt")
    assert names == {"0": "X", "1": "X (2)", "2": "X (2) (2)"}


SKOS = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix ex: <http://example.org/> .
ex:s1 skos:prefLabel "leivonta"@fi, "baking"@en ; skos:altLabel "bread"@en .
ex:s2 skos:prefLabel "puutarhanhoito"@fi, "gardening"@en .
"""


def test_names_of_a_vocabulary_in_one_of_its_languages(tmp_path):
    pytest.importorskip("rdflib")
    names = tmp_path / "subjects.ttl"
    names.write_text(SKOS)
    table = _csv(tmp_path, [(f"text {row}", [f"http://example.org/s{1 + row % 2}"]) for row in range(20)])
    with pytest.raises(InputError, match=r"languages en, fi[^$]*--names-language en"):
        prepare(table, tmp_path / "out.sqlite", PrepareOptions(label_names=names))
    options = PrepareOptions(label_names=names, names_language="fi")
    assert sorted(prepare(table, tmp_path / "fi.sqlite", options).names) == ["leivonta", "puutarhanhoito"]
    options = PrepareOptions(label_names=names, names_language="sv")
    refused("no concept has a preferred name in the language 'sv'", prepare, table, tmp_path / "sv.sqlite", options)
    names.write_text(SKOS.replace('"leivonta"@fi, ', "").replace('"puutarhanhoito"@fi, ', ""))
    store = prepare(table, tmp_path / "one.sqlite", PrepareOptions(label_names=names))
    assert sorted(store.names) == ["baking", "gardening"]


def test_a_language_of_names_needs_a_vocabulary(tmp_path):
    with pytest.raises(InputError, match="no effect without --names-file"):
        prepare(_csv(tmp_path), tmp_path / "out.sqlite", PrepareOptions(names_language="fi"))
    (tmp_path / "names.tsv").write_text("a\tb\n")
    options = PrepareOptions(label_names=tmp_path / "names.tsv", names_language="fi")
    refused("is not a SKOS vocabulary", prepare, _csv(tmp_path), tmp_path / "out.sqlite", options)


@pytest.mark.parametrize("ending", ["-journal", "-wal", "-shm"])
def test_files_beside_a_new_data_set_are_kept(tmp_path, ending):
    other = tmp_path / f"out.sqlite{ending}"
    other.write_text("mine")
    refused("would be taken for a part of the new data set", prepare, _csv(tmp_path), tmp_path / "out.sqlite")
    assert other.read_text() == "mine"


def test_labels_that_training_lacks_are_reported(tmp_path):
    rows = [(f"text {n}", [f"label {n}"]) for n in range(100)]
    summary = summary_of(prepare(_csv(tmp_path, rows), tmp_path / "out.sqlite"))
    assert summary.only_in_test == 10
    assert "10 labels have test documents only: only names can find them" in summary.text()


def test_a_changed_table_and_other_columns_are_read_again(tmp_path, caplog):
    caplog.set_level("INFO")
    table, columns = _csv(tmp_path), ColumnOptions(text=["label"], labels="text")
    store = prepare(table, tmp_path / "out.sqlite")
    before = store.texts("train")
    record_run(store, Run(began="2026-01-01T10:00:00+00:00", seconds=1.0, command="train", model="m", kind="XR-Linear"))
    table.write_bytes(table.read_bytes().replace(b"even", b"evem"))  # of the same size
    store = prepare(table, tmp_path / "out.sqlite")
    assert "evem" in store.names
    assert "(labels changed); its earlier runs (1) stay listed" in caplog.text
    assert len(runs_of(store)) == 1
    refused("has been read again by another command", list, before)
    assert list(store.texts("train"))
    writer = writing.RowWriter(store, Columns((0,), 1))  # of a command that still reads
    writer.add(TableRow(62, ["a text", "a label"]))
    (tmp_path / "copy.csv").write_bytes(table.read_bytes())  # the same rows under another name
    store = prepare(tmp_path / "copy.csv", tmp_path / "out.sqlite", PrepareOptions(columns=columns))
    assert set(store.names) == {text for text, _ in ROWS}
    assert "(texts, labels, columns changed)" in caplog.text
    refused("another command has begun to read the table again", writer.commit, "all")
    assert store.count() == 6  # documents: the rows of a text are one


@pytest.mark.parametrize("content", ["text,label\n", "text,label\na text,\nanother,\n"])
def test_a_refused_table_can_be_corrected(tmp_path, content):
    table = tmp_path / "table.csv"
    table.write_text(content)
    with pytest.raises(InputError):
        prepare(table, tmp_path / "table.sqlite")
    assert prepare(_csv(tmp_path), tmp_path / "table.sqlite").count() == 60


def test_a_store_says_what_it_is_not(tmp_path):
    refused("does not exist", TableStore.open, tmp_path / "none.sqlite")
    store = prepare(_csv(tmp_path), tmp_path / "out.sqlite")
    refused("unknown split", store.texts, "training")
    store.write_meta(version=99)
    refused("unknown version", TableStore.open, tmp_path / "out.sqlite")


def test_missing_values_of_a_frame_are_missing_cells(tmp_path):
    nan = float("nan")
    frame = {"text": ["a text", None, "third"], "label": ["x", "y", nan]}
    store = prepare(frame, tmp_path / "out.sqlite", PrepareOptions(splits=ALL_TRAINING, max_bad_rows=1))
    assert _content(store) == {"a text": {"x"}}
    assert summary_of(store).bad_rows == {"no label": 1, "no text": 1}


def test_the_current_folder_is_a_table(tmp_path, monkeypatch, capsys):
    for number, (text, labels) in enumerate(ROWS):
        (tmp_path / f"{number}.txt").write_text(text)
        (tmp_path / f"{number}.key").write_text("\n".join(labels))
    monkeypatch.chdir(tmp_path)
    main(["."])
    assert capsys.readouterr().out.startswith("data.sqlite\n60 documents")
    assert database_of("") == database_of(".")

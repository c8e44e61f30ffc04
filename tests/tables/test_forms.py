"""The same rows in every form of table: nested, compressed, and in any dialect."""

import csv
import gzip
import io
import json
import sqlite3
import zipfile
from itertools import count

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.models.documents import read_documents
from xmc_tf.tables.column_choice import choose_columns
from xmc_tf.tables.columns import ColumnOptions, TrainedColumns
from xmc_tf.tables.preparation import PrepareOptions, prepare
from xmc_tf.tables.reading.options import SourceOptions
from xmc_tf.tables.reading.records import TableRow
from xmc_tf.tables.reading.sources import open_source
from xmc_tf.tables.splits import SplitOptions

NESTED = [
    {"doc": {"title": f"Rye bread {n}", "text": f"A long text about bread {n}"}, "labels": [{"id": n, "name": name}]}
    for n, name in enumerate(["usa", "air-travel", "usa"])
]
NESTED[0]["labels"].append({"id": 9, "name": "food, drinks"})
TEXTS = [f"Rye bread {n} A long text about bread {n}" for n in range(3)]
LABELS = [["usa", "food, drinks"], ["air-travel"], ["usa"]]


def read(table, options=None, source=None, labelled=True):
    """Return the texts and labels of a table."""
    found = open_source(table, source)
    rows = [row.cells for row in found.records() if isinstance(row, TableRow)]
    columns, _ = choose_columns(found.name, found.columns, rows, options or ColumnOptions(), labelled=labelled)
    return [" ".join(columns.text_of(row).split()) for row in rows], [columns.labels_of(row) for row in rows]


def _lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def _written(text):
    return lambda folder: [(folder / "t.json").write_text(text), folder / "t.json"][1]


def _parquet(folder):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist(NESTED), folder / "t.parquet")
    return folder / "t.parquet"


def _csv(of_cell):
    def write(folder):
        with (folder / "t.csv").open("w", newline="") as file:
            csv.writer(file).writerows(
                [("doc", "labels"), *((of_cell(r["doc"]), of_cell(r["labels"])) for r in NESTED)]
            )
        return folder / "t.csv"

    return write


FORMS = {
    "JSON lines": _written(_lines(NESTED)),
    "JSON array": _written(json.dumps(NESTED)),
    "JSON array over lines": _written(json.dumps(NESTED, indent=2)),
    "Parquet": _parquet,
    "JSON in CSV": _csv(json.dumps),
    "Python in CSV": _csv(repr),
    "dictionary of columns": lambda _: {name: [row[name] for row in NESTED] for name in ("doc", "labels")},
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_parts_of_dictionaries_are_columns(form, tmp_path):
    table = FORMS[form](tmp_path)
    assert read(table) == (TEXTS, LABELS)
    named = ColumnOptions(text=["doc.title"], labels="labels[].id")
    assert read(table, named) == ([f"Rye bread {n}" for n in range(3)], [["0", "9"], ["1"], ["2"]])
    trained = ColumnOptions(trained=TrainedColumns(("doc.text",), "labels[].name"))
    assert read(table, trained)[1] == LABELS
    for wrong in (ColumnOptions(labels="labels"), ColumnOptions(text=["doc"])):
        error = refused("holds dictionaries, whose parts are columns", read, table, wrong)
        assert "doc.title, doc.text" in str(error) or "labels[].id, labels[].name" in str(error)


def test_records_of_python_are_read_as_tables():
    for documents in (NESTED, FORMS["dictionary of columns"](None)):
        found = read_documents(documents, "labels[].name", {"text": ["doc.title", "doc.text"]})
        assert (list(found.texts), found.labelled().lists) == (TEXTS, LABELS)
        assert (found.columns.texts, found.columns.labels) == (("doc.title", "doc.text"), "labels[].name")
    one = read_documents({"doc": NESTED[0]["doc"], "labels": []}, trained=found.columns)
    assert list(one.texts) == TEXTS[:1]
    assert list(read_documents({"text": "A text", "labels": ["a", "b"]}, "labels").texts) == ["A text"]
    for labels in ([[{"name": "usa"}]], [{"name": "usa"}]):
        with pytest.raises(InputError):
            read_documents(["a text"], labels)


def test_columns_of_several_levels_and_of_0_and_1():
    frame = {("q", "title"): TEXTS, ("q", "id"): [1, 2, 3], ("y", "sea"): [1, 0, 1], ("y", "ice"): [0, 1, 1]}
    for labels in ([("y", "sea"), ("y", "ice")], "y.sea,y.ice"):
        found = read_documents(frame, labels, {"text": ("q", "title")})
        assert (list(found.texts), found.labelled().lists) == (TEXTS, [["y.sea"], ["y.ice"], ["y.sea", "y.ice"]])
        assert (found.columns.texts, found.columns.indicators) == (("q.title",), ("y.sea", "y.ice"))
        assert list(read_documents(frame, trained=found.columns).texts) == TEXTS
    assert read_documents(frame, ("q", "id"), {"text": ("q", "title")}).labelled().lists == [["1"], ["2"], ["3"]]
    flat = {"text": TEXTS, "sea": [1, 0, 1], "ice": [0, 1, 1]}
    assert read_documents(flat, ["sea", "ice"]).labelled().lists == [["sea"], ["ice"], ["sea", "ice"]]


def test_dictionaries_are_never_texts_or_labels(tmp_path):
    many = [{"text": f"text {n}", "labels": {f"key {n} {m}": 1 for m in range(60)}} for n in range(9)]
    refused("column 'labels' holds dictionaries", read, _written(_lines(many))(tmp_path))
    mixed = [{"text": f"text {n}", "labels": ["a", {"name": "b"}]} for n in range(9)]
    refused("column 'labels", read, _written(_lines(mixed))(tmp_path), ColumnOptions(labels="labels[].name"))
    late = [{"text": f"text {n}", "labels": ["a"]} for n in range(1500)] + [{"text": {"a": "b"}, "labels": ["a"]}]
    store = prepare(
        _written(_lines(late))(tmp_path), tmp_path / "out.sqlite", PrepareOptions(splits=SplitOptions(0, 0))
    )
    assert store.count() == 1500
    reasons = store.connection.execute("SELECT line, reason FROM bad_rows").fetchall()
    assert reasons == [(1501, "a dictionary in place of a text")]
    frame = {name: [row[name] for row in late] for name in ("text", "labels")}
    refused("document 1,500: a dictionary in place of a text", read_documents, frame, "labels")


@pytest.mark.parametrize("form", ["split", "index"])
def test_one_json_object_is_no_table(tmp_path, form):
    """As pandas' to_json writes in some of its forms."""
    rows = {str(n): {"text": f"text {n}", "label": "a"} for n in range(9)}
    split = {"columns": ["text", "label"], "data": [[*row.values()] for row in rows.values()]}
    table = _written(json.dumps(rows if form == "index" else split))(tmp_path)
    refused("holds one JSON object", prepare, table, tmp_path / "out.sqlite")
    refused("holds one JSON object", prepare, table, tmp_path / "out.sqlite")


def test_what_is_no_object_in_an_array_is_a_bad_row(tmp_path):
    path = _written("[" + json.dumps(NESTED[0]) + ', "doc", {}]')(tmp_path)
    assert [type(row).__name__ for row in open_source(path).records()] == ["TableRow", "BadRow", "TableRow"]
    refused("holds no JSON objects", open_source, _written("[" + json.dumps(NESTED[0]) + ', {"doc": oops}]')(tmp_path))


def _zip(path, content, name="data.csv"):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
        archive.writestr("__MACOSX/._data.csv", "x")
        archive.writestr("data/.DS_Store", "x")


PACKED = {
    "gz": lambda path, content: path.write_bytes(gzip.compress(content)),
    "zip": _zip,
}


@pytest.mark.parametrize("method", PACKED)
def test_compressed_tables(method, tmp_path):
    path = tmp_path / f"t.csv.{method}"
    PACKED[method](path, "text;label\nBäume im Wald;a|b\nein Garten;b\n".encode("cp1252"))
    assert read(path, ColumnOptions(separator="|")) == (["Bäume im Wald", "ein Garten"], [["a", "b"], ["b"]])
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - 12])
    refused(r"is damaged|another archive", read, path)


def test_an_archive_of_several_files_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("a.csv", "text,label\n")
        archive.writestr("b.csv", "text,label\n")
    refused(["cannot be read as a table", "a.csv, b.csv"], open_source, tmp_path / "t.zip")
    _zip(tmp_path / "t.zip", "text,label\n")
    content = bytearray((tmp_path / "t.zip").read_bytes())
    for mark, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        content[content.index(mark) + at] = 9  # Deflate64, which Windows writes for large files
    (tmp_path / "t.zip").write_bytes(content)
    refused(["t.zip cannot be unpacked", "unpack it"], open_source, tmp_path / "t.zip")
    with gzip.open(tmp_path / "t.sqlite.gz", "wb") as file:
        file.write(b"SQLite format 3\x00")
    refused("is compressed by gzip", open_source, tmp_path / "t.sqlite.gz")


@pytest.mark.parametrize("separator", ",;")
@pytest.mark.parametrize("before", ["", "0,words,a\n"])
@pytest.mark.parametrize("repeated", [15_000, 30_000])
def test_a_long_text_near_the_top(tmp_path, separator, before, repeated):
    csv.field_size_limit(131_072)  # Python's own, which earlier readers may have raised
    text = "many words, " * repeated
    path = tmp_path / "t.csv"
    rows = f'id,text,label\n{before}1,"{text}",b\n2,short,c\n'
    path.write_text(rows.replace(",", separator).replace("many words" + separator, "many words,"))
    assert [len(row.cells) for row in open_source(path).records()] == [3] * (2 + bool(before))


words = st.text("abcdefgäß字", min_size=1, max_size=8)
tables = st.lists(
    st.tuples(st.lists(words, min_size=2, max_size=6), st.lists(words, min_size=1, max_size=4, unique=True)),
    min_size=4, max_size=8,
)  # fmt: skip
_NUMBER = count()


def _delimited(path, rows, separator, encoding, of_labels):
    file = io.StringIO()
    csv.writer(file, delimiter=separator).writerows([("text", "label"), *((text, of_labels(y)) for text, y in rows)])
    path.write_bytes(file.getvalue().encode(encoding))
    return path


@settings(max_examples=10, phases=[Phase.explicit, Phase.generate])  # each example is many tables
@example([(["Rye"], ["Küche"]), (["bread", "oven"], ["字", "ß"])])
@given(tables)
def test_the_same_rows_in_every_form(tmp_path_factory, table):
    """Each form of a table, each dialect and each way of writing labels gives the same texts and labels."""
    rows = [(f"{n} " + ", ".join(text), labels) for n, (text, labels) in enumerate(table)]
    expected = ([text for text, _ in rows], [labels for _, labels in rows])
    folder = tmp_path_factory.getbasetemp() / f"forms-{next(_NUMBER)}"
    folder.mkdir()
    lists = {"[]": repr, "[] in JSON": json.dumps, "|": "|".join, ";": "; ".join}
    forms = {}
    for name, of_labels in lists.items():
        sep = name[:2] if name.startswith("[]") else name
        for at, (separator, encoding) in enumerate(
            [(",", "utf-8"), (";", "utf-8-sig"), ("\t", "utf-16"), ("|", "utf-8")]
        ):
            path = _delimited(folder / f"{len(forms)}.csv", rows, separator, encoding, of_labels)
            forms[f"{name} {at}"] = (path, sep)
        path = folder / f"{len(forms)}.db"
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE t (text, label)")
            database.executemany("INSERT INTO t VALUES (?, ?)", [(text, of_labels(y)) for text, y in rows])
        forms[f"SQLite {name}"] = (path, sep)
    plain = (folder / "0.csv").read_bytes()
    for method, pack in PACKED.items():
        pack(folder / f"t.csv.{method}", plain)
        forms[method] = (folder / f"t.csv.{method}", "[]")
    flat = [{"text": text, "label": labels} for text, labels in rows]
    deep = [{"text": {"of": text}, "label": [{"name": one} for one in labels]} for text, labels in rows]
    for name, content in {"flat": flat, "deep": deep}.items():
        for way, text in {"lines": _lines(content), "array": json.dumps(content, indent=1)}.items():
            (folder / f"{name}-{way}.json").write_text(text)
            forms[f"{name} {way}"] = (folder / f"{name}-{way}.json", None)
        forms[f"{name} columns"] = ({key: [row[key] for row in content] for key in ("text", "label")}, None)
    for name, (form, separator) in forms.items():
        deeply = name.startswith("deep")
        options = ColumnOptions(["text.of" if deeply else "text"], "label[].name" if deeply else "label", separator)
        delimited = SourceOptions(separator={" 0": ",", " 1": ";", " 2": "\t", " 3": "|"}.get(name[-2:]))
        assert read(form, options, None if delimited.separator is None else delimited) == expected, name

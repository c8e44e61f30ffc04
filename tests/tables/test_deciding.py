"""A data set belongs to all that decides it beside the cells of its table, such as columns, encodings and links."""

import shutil

import pytest

from tests.tables.test_identity import FILES, NAMES, ROWS
from xmc_tf.common.errors import InputError
from xmc_tf.tables.columns import ColumnOptions
from xmc_tf.tables.preparation import PrepareOptions, prepare
from xmc_tf.tables.reading.options import SourceOptions
from xmc_tf.tables.reading.sources import open_source
from xmc_tf.tables.splits import SplitOptions


def _written(folder, name, content):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / name


_IDS = "text,label,first,second\n" + "".join(
    f"{text},{label},a{row},b{row}\n" for row, (text, label) in enumerate(ROWS)
)
_POLISH = "".join(f"gęś {text},{label}\n" for text, label in ROWS)
_FASTTEXT = "".join(f"__label__{label} gęś {text}\n" for text, label in ROWS)
_SUBJECTS = "".join(
    f'<http://{name}> <http://www.w3.org/2004/02/skos/core#prefLabel> "{name}!"@en .\n' for name in NAMES
)
_URIS = "text,label\n" + "".join(f"{text},http://{label}\n" for text, label in ROWS)
_LINKED = "text,label\n" + "".join(f"{text},{NAMES[0]}\n" for text, _ in ROWS)


def _two_folders(folder, trained):
    (folder / "test").mkdir(exist_ok=True)
    for part, rows in (("corpus", ROWS[:trained]), ("test/corpus", ROWS[trained:])):
        shutil.rmtree(folder / part, ignore_errors=True)
        FILES["Annif's folder of labels"]((folder / part).parent, rows)
    return folder / "corpus", {"test_table": folder / "test" / "corpus"}


def _two_encodings(folder, encoding):
    table = _written(folder, "data.csv", "text,label\n" + _POLISH.replace("gęś", "goose"))
    test = _written(folder, "test.csv", ("text,label\n" + _POLISH).encode("iso8859-2"))
    return table, {"test_table": test, **_encoding(encoding)}


def _linked(folder, name):
    _written(folder, "one.csv", _URIS)
    _written(folder, "two.csv", _LINKED)
    (folder / "data.csv").unlink(missing_ok=True)
    (folder / "data.csv").symlink_to(name)
    return folder / "data.csv", {}


def _folder_of_matrices(folder, name):
    table = FILES["PECOS's folder"](folder, ROWS)
    (table / "labels.txt").write_text("\n".join([name, *NAMES[1:]]))
    return table, {}


def _folder_of_uris(folder, name):
    table = FILES["Annif's folder of URIs"](folder, ROWS)
    for path in table.glob("*.tsv"):
        path.write_text(path.read_text().replace(f"\t{NAMES[0]}", f"\t{name}"))
    return table, {}


def _names_called(folder, name):
    return _written(folder, "data.csv", _URIS), {"label_names": _written(folder, name, _SUBJECTS)}


def _read_as(content, options):
    return lambda folder, value: (_written(folder, "data.csv", content), options(value))


def _columns(name):
    return lambda value: {"columns": ColumnOptions(**{name: value})}


def _encoding(name):
    return {"source": SourceOptions(encoding=name)}


def _header(header):
    return {"source": SourceOptions(header=header), "columns": ColumnOptions(["0"], "1")}


# What decides a data set beside the cells of its table, and two values of it.
DECIDING = {
    "the column of identifiers": (_read_as(_IDS, _columns("ids")), "first", "second"),
    "the column of documents": (_read_as(_IDS, _columns("document")), "first", ""),
    "the column of labels": (_read_as(_IDS, _columns("labels")), "label", "first"),
    "the separator of labels": (_read_as(_URIS, _columns("separator")), "", "/"),
    "the seed of the splits": (_read_as(_IDS, lambda seed: {"splits": SplitOptions(seed=seed)}), 0, 1),
    "the header": (_read_as(_URIS, _header), True, False),
    "the encoding": (_read_as(f"text,label\n{_POLISH}".encode("iso8859-2"), _encoding), None, "iso8859-2"),
    "the encoding of lines": (_read_as(_FASTTEXT.encode("iso8859-2"), _encoding), None, "iso8859-2"),
    "the encoding of the test table": (_two_encodings, None, "utf-8"),
    "the folder of a document": (_two_folders, 20, 25),
    "a name in a folder of matrices": (_folder_of_matrices, "bread", "bagel"),
    "a name in a folder of URIs": (_folder_of_uris, "bread", "bagel"),
    "the file of a link": (_linked, "one.csv", "two.csv"),
    "the ending of a vocabulary": (_names_called, "names.ttl", "names.txt"),
}  # fmt: skip


@pytest.mark.parametrize("name", DECIDING)
def test_all_else_that_decides_the_data_set_is_seen(name, tmp_path):
    make, before, after = DECIDING[name]

    def read(value, database):
        table, options = make(tmp_path, value)
        try:
            store = prepare(table, tmp_path / database, PrepareOptions(**options))
        except InputError as error:  # without the path
            return str(error).partition(": ")[2].partition("\n")[0]
        query = (
            "SELECT text, documents.name, split, label FROM documents JOIN document_labels ON document = documents.id"
        )
        return store.names, sorted(store.connection.execute(query).fetchall(), key=str)

    first, found = read(before, "data.sqlite"), read(after, "data.sqlite")
    assert found == read(after, "new.sqlite") != first
    assert read(before, "data.sqlite") == first


def test_a_byte_order_mark_is_no_text_whatever_encoding_is_named(tmp_path):
    for encoding in ("utf-8-sig", "utf-16"):
        table = _written(tmp_path, "data.csv", "".join(f"{text},{label}\n" for text, label in ROWS).encode(encoding))
        for named in (None, encoding.removesuffix("-sig"), "utf-16-le" if encoding == "utf-16" else "utf-8"):
            source = open_source(table, SourceOptions(encoding=named, header=False))
            assert next(source.records()).cells == ROWS[0]

"""CSV files as found in practice."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmc_tf.tables.reading import delimited
from xmc_tf.tables.reading.delimited import DelimitedFile
from xmc_tf.tables.reading.records import BadRow, TableRow


def _rows(path, **options):
    file = DelimitedFile(path, **options)
    return file, list(file.records())


def _written(folder, content, encoding="utf-8"):
    path = folder / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"text,label\ncaf\xc3\xa9,a\n", "UTF-8, separated by commas"),
        (b"\xef\xbb\xbftext,label\ncaf\xc3\xa9,a\n", "UTF-8, separated by commas"),
        (b"text;label\ncaf\xe9;a\n", "Windows-1252, separated by semicolons"),
        (b"text;label\ncaf\xe9;a\x81\n", "Latin-1, separated by semicolons"),
        ("text\tlabel\ncafé\ta\n".encode("utf-16"), "UTF-16, separated by tabs"),
        ("text\tlabel\ncafé\ta\n".encode("utf-16-be"), "UTF-16, separated by tabs"),
        (b"sep=|\r\ntext|label\r\ncaf\xc3\xa9|a\r\n", "UTF-8, separated by bars"),
    ],
)
def test_encoding_and_separator_are_found(tmp_path, content, kind):
    file, rows = _rows(_written(tmp_path, content))
    assert file.kind == kind
    assert file.columns == ["text", "label"]
    assert rows[0].cells[0] == "café"


def test_quotes_and_line_ends_in_cells(tmp_path):
    path = _written(tmp_path, 'text,label\n"a ""quoted"" word,\nand a line",x\nplain,y\n')
    assert _rows(path)[1] == [TableRow(2, ['a "quoted" word,\nand a line', "x"]), TableRow(4, ["plain", "y"], 3)]
    assert [row.place for row in _rows(path)[1]] == ["line 2", "row 3 (line 4)"]


def test_a_quote_that_is_never_closed_costs_one_line(tmp_path):
    path = _written(tmp_path, 'text,label\none,a\n"two,b\nthree,c\nfour,d\n')
    rows = _rows(path)[1]
    assert [row.cells for row in rows if isinstance(row, TableRow)] == [["one", "a"], ["three", "c"], ["four", "d"]]
    assert [row for row in rows if isinstance(row, BadRow)] == [BadRow(3, "a quote is not closed", '"two,b\n')]


@pytest.mark.parametrize("line", ['12" pipe,"hoses', 'b","', 'a """"",",', 'aab","""a'])
def test_open_quotes_in_all_lines_are_found_in_a_time_of_their_number(tmp_path, monkeypatch, line):
    """Each such line was once read with all lines after it, or all lines were one row."""
    asked, read = [0], delimited._Lines.__next__

    def counted(self):
        asked[0] += 1
        return read(self)

    monkeypatch.setattr(delimited._Lines, "__next__", counted)
    rows = _rows(_written(tmp_path, "text,label\nwords,a\n" + f"{line}\n" * 2000), separator=",", header=True)[1]
    assert rows[0].cells == ["words", "a"]
    assert [row.line for row in rows[1:]] == [*range(3, 2003)]
    assert {row.reason for row in rows[1:]} == {"a quote is not closed"}
    assert asked[0] < 50 * 2000


def test_rows_of_another_width_are_named(tmp_path):
    path = _written(tmp_path, "text,label\none,a\ntwo\nthree,c,d\n\nfour,d\n")
    assert [row for row in _rows(path)[1] if isinstance(row, BadRow)] == [
        BadRow(3, "1 cells, expected 2", "two"),
        BadRow(4, "3 cells, expected 2", "three | c | d"),
    ]


@pytest.mark.parametrize(
    ("content", "header"),
    [
        ("text,label\nsome longer text here,a\nanother text of a document,b\n", True),
        ("some longer text here,a\nanother text of a document,b\na third text of a document,a\n", False),
        ("Title,Tags\nsome longer text here,a\nanother text of a document,b\n", True),
        ("1,some longer text here\n0,another text of a document\n", False),
        (",headline,mood\n0,some longer text here,a\n1,another text of a document,b\n", True),
        (",headline,mood\nx,some longer text here,a\ny,another text of a document,b\n", False),
        ("text,label,\nsome longer text here,a,\nanother text of a document,b,\n", True),
        ("text,label,label\nsome longer text here,a,b\nanother text of a document,b,c\n", True),
        ("some longer text here,a,a\nanother text of a document,b,c\n", False),
    ],
)
def test_a_missing_header_is_noticed(tmp_path, content, header):
    file, rows = _rows(_written(tmp_path, content))
    assert file.header is header
    assert len(rows) == content.count("\n") - header
    assert file.columns[0] == ((header and content.split(",")[0]) or "column 1")
    assert len(set(file.columns)) == len(file.columns)


def test_a_cell_of_five_megabytes(tmp_path):
    text = "word " * 1_000_000
    assert _rows(_written(tmp_path, f"text,label\n{text},a\n"))[1] == [TableRow(2, [text, "a"])]


cells = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20)


@given(
    rows=st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=8),
    separator=st.sampled_from(",;\t|"),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_what_a_csv_writer_writes_is_read(tmp_path_factory, rows, separator, encoding):
    file = io.StringIO()
    csv.writer(file, delimiter=separator, quoting=csv.QUOTE_ALL).writerows([("a", "b", "c"), *rows])
    path = tmp_path_factory.getbasetemp() / "property.csv"
    path.write_bytes(file.getvalue().encode(encoding))
    read = list(DelimitedFile(path, separator=separator, header=True, encoding=encoding).records())
    assert [row.cells for row in read] == [list(row) for row in rows]


def test_bars_between_the_labels_of_all_cells_do_not_separate_cells(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("text,label\n" + "".join(f"some words {n},a|b|c\n" for n in range(50)))
    assert DelimitedFile(path).columns == ["text", "label"]

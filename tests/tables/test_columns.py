"""Which columns hold texts and labels."""

import pytest

from xmc_tf.common.errors import InputError
from xmc_tf.tables.columns import ColumnOptions, choose_columns

ROWS = [["1", "a long text about something", "x"], ["2", "another long text", "y"], ["3", "a third one of these", "x"]]


@pytest.mark.parametrize(
    ("names", "texts", "labels", "guesses"),
    [
        (["id", "text", "label"], (1,), 2, 0),
        (["id", "Text", "LABEL"], (1,), 2, 0),
        (["id", "abstract", "Tags"], (1,), 2, 2),
        (["id", "something", "category"], (1,), 2, 2),
    ],
)
def test_columns_are_found_by_their_names(names, texts, labels, guesses):
    columns, said = choose_columns("t.csv", names, ROWS, ColumnOptions())
    assert (columns.texts, columns.labels) == (texts, labels)
    assert len(said) == guesses


def test_the_title_is_part_of_the_text():
    rows = [[row[0], f"title {row[0]}", *row[1:]] for row in ROWS]
    columns, said = choose_columns("t.csv", ["id", "title", "abstract", "label"], rows, ColumnOptions())
    assert (columns.texts, columns.labels) == ((1, 2), 3)
    assert said == ["texts: columns 'title' and 'abstract' (--text-column)"]


def test_of_two_columns_the_longer_one_is_the_text():
    columns, _ = choose_columns("t.csv", ["column 1", "column 2"], [row[1:] for row in ROWS], ColumnOptions())
    assert (columns.texts, columns.labels) == ((0,), 1)


def test_the_only_column_of_lists_holds_the_labels_in_any_language():
    rows = [
        [
            f"r{n}",
            f"otsikko {n}",
            f"pitkä teksti, jossa on monta sanaa {n}; ja toinen osa, joka on aivan yhtä pitkä kuin tuo ensimmäinen",
            f"kissat; koirat {n}",
        ]
        for n in range(9)
    ]
    names = ["id", "Otsikko", "Tiivistelmä", "Asiasanat"]
    columns, said = choose_columns("t.csv", names, rows, ColumnOptions())
    assert (columns.texts, columns.labels, columns.separator) == ((2,), 3, ";")
    assert said[0] == "labels: column 'Asiasanat' (--label-column)"
    with pytest.raises(InputError, match="which column holds the labels"):  # one of them may hold the authors
        choose_columns("t.csv", [*names, "Tekijät"], [[*row, "Meri; Aalto"] for row in rows], ColumnOptions())


def test_a_column_of_numbers_of_documents_is_no_label():
    with pytest.raises(InputError, match="which column holds the labels"):
        choose_columns("t.csv", ["id", "text"], [row[:2] for row in ROWS], ColumnOptions())


def test_several_columns_are_joined_and_missing_cells_left_out():
    options = ColumnOptions(text=["title", "text"], labels="label")
    columns, said = choose_columns("t.csv", ["title", "text", "label"], ROWS, options)
    assert columns.text_of(["A title", "and a text", "x"]) == "A title\nand a text"
    assert columns.text_of(["", "and a text", "x"]) == columns.text_of([None, "and a text", "x"]) == "and a text"
    assert said == []


@pytest.mark.parametrize(
    ("cells", "separator", "labels"),
    [
        (["a|b", "b|c", "a"], "|", ["a", "b"]),
        (["a; b", "b; c", "a"], ";", ["a", "b"]),
        (["a, b", "b, a", "a", "b"], ",", ["a", "b"]),
        (["Paris, France", "Rome, Italy", "Oslo, Norway"], "", ["Paris, France"]),
        (["1", "2", "3"], "", ["1"]),
        (["1 5", "2", "3"], " ", ["1", "5"]),
        (["1 a", "2", "3"], "", ["1 a"]),
        (["a b\tc, d", "c, d", "c, d\ta"], "\t", ["a b", "c, d"]),
        (["Paris, France", "Rome, Italy"] * 50, "", ["Paris, France"]),  # that a name occurs again says nothing
        (["Tops > Shirts, blouses", "Tops > Shirts, polos", "Tops > Shirts, tees"], "", ["Tops > Shirts, blouses"]),
        (["a; b", "b; c", *["a"] * 60], ";", ["a", "b"]),  # few cells, whose parts occur again
        (["['a', \"b's\"]", "['c, d']", "[]"], "[]", ["a", "b's"]),
        (['["a", "b"]', '["c"]'], "[]", ["a", "b"]),
        (["['a' 'b']", "['c']"], "[]", ["a", "b"]),
        (["__label__a __label__b", "__label__c"], " ", ["a", "b"]),
        (["2580.0", "17", ""], "", ["2580"]),
        (["1.0", "1.5"], "", ["1.0"]),
        ([["a", "b"], ["c"]], "", ["a", "b"]),
        ([3.0, 4.0], "", ["3"]),
    ],
)
def test_labels_of_a_cell(cells, separator, labels):
    columns, _ = choose_columns("t.csv", ["text", "label"], [["a text", cell] for cell in cells], ColumnOptions())
    assert columns.separator == separator
    assert columns.labels_of(["a text", cells[0]]) == labels


def test_a_number_that_is_not_whole_stays_whatever_the_others_are():
    columns, _ = choose_columns("t.csv", ["text", "label"], [["a text", "3.0"]] * 9, ColumnOptions())
    assert [columns.labels_of(["a text", cell]) for cell in ("3.0", "3.7", "4")] == [["3"], ["3.7"], ["4"]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (ColumnOptions(labels="tag"), "no column 'tag'"),
        (ColumnOptions(labels="3"), "no column '3'"),
        (ColumnOptions(labels="9" * 5000), "no column '999"),
        (ColumnOptions(text=["body"], labels="label"), "no column 'body'"),
    ],
)
def test_a_column_that_does_not_exist_is_named(options, words):
    with pytest.raises(InputError, match=words) as error:
        choose_columns("t.csv", ["id", "text", "label"], ROWS, options)
    assert "id, text, label" in str(error.value)


def test_a_column_may_be_named_in_any_case_or_by_its_place():
    for name in ("Label", "label", " LABEL", "2"):
        assert choose_columns("t.csv", ["id", "text", "Label"], ROWS, ColumnOptions(labels=name))[0].labels == 2


def test_columns_of_0_and_1_are_labels_if_there_are_enough_of_them():
    rows = [[str(n), f"a text about the number {n}", str(n % 2), "0", "3.5"] for n in range(9)]
    with pytest.raises(InputError, match=r"which column holds the labels(.|\n)*price: '3.5', '3.5', '3.5'"):
        choose_columns("t.csv", ["id", "body", "new", "old", "price"], rows, ColumnOptions())
    columns, said = choose_columns("t.csv", ["id", "body", "new", "old"], [row[:4] for row in rows], ColumnOptions())
    assert (columns.texts, columns.labels, columns.indicators) == ((1,), None, [(2, "new"), (3, "old")])
    assert "columns of 0 and 1" in said[0]
    named = ColumnOptions(labels="old,new")
    assert [choose_columns("t.csv", ["id", "body", "new", "old"], [row[:4] for row in rows], named)[0].labels_of(row)
            for row in rows[:2]] == [[], ["new"]]  # fmt: skip
    with pytest.raises(InputError, match="column 'price' has values other than 0 and 1"):
        choose_columns("t.csv", ["id", "body", "new", "old", "price"], rows, ColumnOptions(labels="new,price"))


def test_a_few_copies_with_other_labels_are_no_pairs():
    rows = [[f"text {n}", f"label {n % 3}"] for n in range(100)]
    rows += [["text 7", "label 0"], ["text 8", "label 0"]]
    assert not choose_columns("t.csv", ["text", "label"], rows, ColumnOptions())[0].merges_rows
    with_ids = [[text.split()[1], text, label] for text, label in rows]
    found = choose_columns("t.csv", ["id", "text", "label"], with_ids, ColumnOptions())[0]
    assert found.document == 0
    each = ColumnOptions(document="")
    assert not choose_columns("t.csv", ["id", "text", "label"], with_ids, each)[0].merges_rows


def test_without_a_column_of_labels_nothing_is_guessed():
    with pytest.raises(InputError, match="which column holds the labels"):
        choose_columns("t.csv", ["id", "text", "number"], ROWS, ColumnOptions())

"""Which columns hold texts and labels."""

from itertools import combinations

import pytest

from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.tables.column_choice import choose_columns
from xmc_tf.tables.columns import ColumnOptions, TrainedColumns
from xmc_tf.tables.label_forms import read_labels

ROWS = [["1", "a long text about something", "x"], ["2", "another long text", "y"], ["3", "a third one of these", "x"]]


@pytest.mark.parametrize(
    ("names", "texts", "labels", "guesses"),
    [
        (["id", "text", "label"], (1,), 2, 0),
        (["id", "Text", "LABEL"], (1,), 2, 0),
        (["id", "abstract", "Tags"], (1,), 2, 2),
        (["id", "something", "category"], (1,), 2, 2),
        (["Nr.", "Text", "Schlagwörter"], (1,), 2, 1),
        (["clé", "Résumé", "Mots-clés"], (1,), 2, 2),
        (["id", "Descripción", "Palabras clave"], (1,), 2, 2),
        (["id", "Conteúdo", "Palavras-chave"], (1,), 2, 2),
        (["№", "Текст", "Ключевые слова"], (1,), 2, 2),
        (["编号", "正文", "关键词"], (1,), 2, 2),
        (["番号", "本文", "カテゴリ"], (1,), 2, 2),
        (["번호", "본문", "키워드"], (1,), 2, 2),
        (["id", "النص", "الفئة"], (1,), 2, 2),
        (["id", "पाठ", "श्रेणी"], (1,), 2, 2),
        (["doc.id", "doc.abstract", "labels[].name"], (1,), 2, 2),
        (["labels[].id", "doc.abstract", "labels[].name"], (1,), 2, 2),
        (["category.id", "doc.text", "category.name"], (1,), 2, 2),
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
    for names in (["column 1", "column 2"], ["text", "author"]):
        columns, _ = choose_columns("t.csv", names, [row[1:] for row in ROWS], ColumnOptions())
        assert (columns.texts, columns.labels) == ((0,), 1)


def test_the_only_column_of_lists_holds_the_labels_in_any_language():
    rows = [
        [
            f"r{n}",
            f"izenburua {n}",
            f"testu luze bat, hitz asko dituena {n}; eta bigarren zati bat, lehenengoa bezain luzea dena, edo gehiago",
            f"katuak; txakurrak {n}",
        ]
        for n in range(9)
    ]
    names = ["id", "Izenburua", "Laburpena", "Gaiak"]
    columns, said = choose_columns("t.csv", names, rows, ColumnOptions())
    assert (columns.texts, columns.labels, columns.separator) == ((2,), 3, ";")
    assert said[0] == "labels: column 'Gaiak' (--label-column)"
    with pytest.raises(InputError, match="which column holds the labels"):  # one of them may hold the authors
        choose_columns("t.csv", [*names, "Egileak"], [[*row, "Meri; Aalto"] for row in rows], ColumnOptions())


def test_without_a_column_of_labels_nothing_is_guessed():
    for names in (["id", "text"], ["id", "text", "number"]):
        rows = [row[: len(names)] for row in ROWS]
        refused("which column holds the labels", choose_columns, "t.csv", names, rows, ColumnOptions())


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
        (['["K\\u00fcche", "a\\/b"]', '["\\ud83d\\ude00"]'], "[]", ["Küche", "a/b"]),
        ([r"['K\xfcche', 'b\'s', 'C:\dir']", "[]"], "[]", ["Küche", "b's", "C:\\dir"]),
        (["['a', 'b', None, nan]", "[1]"], "[]", ["a", "b"]),
        (["{'a', 'b'}", "{'c'}"], "[]", ["a", "b"]),
        (["('a', 'b')", "('c',)"], "[]", ["a", "b"]),
        (["[np.str_('a (b)'), np.str_('c')]", "[u'K\\xfcche']"], "[]", ["a (b)", "c"]),
        (["[u'K\\xfcche', np.int64(3)]", "[]"], "[]", ["Küche", "3"]),
        (["(a)", "(b), (c)"], "", ["(a)"]),
        (["a\r\nb, c", "d\n"], "\n", ["a", "b, c"]),
        (["a、b", "b、c", "a"], "、", ["a", "b"]),
        (["巴黎，法国", "罗马，意大利", "奥斯陆，挪威"], "", ["巴黎，法国"]),
        (["baking, crust, pretzels", "gardening, herbs", "soup"], ",", ["baking", "crust", "pretzels"]),
        (["baking, crust, pretzels", "gardening", "soup"], ",", ["baking", "crust", "pretzels"]),
        (
            ["Baking, Crust, Pretzels", "Herbs, Pots, Soil", "Salt, Soup"] + ["Sun"] * 9,
            ",",
            ["Baking", "Crust", "Pretzels"],
        ),
        (["a; b; c", "d", "e"], ";", ["a", "b", "c"]),
        (["R&amp;D", "Sales", "Law"], "", ["R&amp;D"]),
        (["food, drinks and tobacco", "clothes, shoes"] * 40, "", ["food, drinks and tobacco"]),
        ([["a", float("nan"), None, 2.0], ["c"]], "", ["a", "2"]),
        (["1.0", "1.5"], "", ["1.0"]),
        ([["a", "b"], ["c"]], "", ["a", "b"]),
        (["nan", "a", "b"], "", []),
        (["None; a", "b; c", "null"], ";", ["a"]),
        (["-", "N/A", "b"], "", []),
        ([["None", "b"], ["c"]], "", ["None", "b"]),
        (["2580.0", "nan", "17"], "", ["2580"]),
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
    for yes, no in (("x", ""), ("TRUE", "FALSE"), ("Yes", "no"), ("X", "-"), ("1", "")):
        marks = [["id", f"a text about the number {n}", (no, yes)[n % 2], "", (no, yes)[n > 4]] for n in range(9)]
        some = ColumnOptions(labels="new,rare,old")
        found = choose_columns("t.csv", ["id", "body", "new", "rare", "old"], marks, some)[0]
        assert [found.labels_of(row) for row in marks[3:6]] == [["new"], [], ["new", "old"]]
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


def test_commas_that_separate_no_labels_are_mentioned_if_rows_are_few(caplog):
    caplog.set_level("INFO")
    for cells, said in ((["Paris, France", "Rome, Italy"], True), (["Paris, France"] * 40, False), (["a", "b"], False)):
        guesses = choose_columns("t.csv", ["text", "label"], [["a text", cell] for cell in cells], ColumnOptions())[1]
        assert any("each cell is one label, although 2 of 2 contain ','" in one for one in guesses) is said
        caplog.clear()
        read_labels(cells)
        assert ("each cell is one label, although 2 of 2 contain ','" in caplog.text) is said


def test_missing_values_in_words_are_counted_and_may_be_kept():
    rows = [["a text", "nan"], ["another text", "bread"], ["a third", "None"]]
    found, said = choose_columns("t.csv", ["text", "label"], rows, ColumnOptions())
    assert said == ["2 of 3 cells of labels are empty: they hold 'nan' and 'None' (--keep-na-labels)"]
    assert [found.labels_of(row) for row in rows] == [[], ["bread"], []]
    kept, said = choose_columns("t.csv", ["text", "label"], rows, ColumnOptions(keep_na=True))
    assert ([kept.labels_of(row) for row in rows], said) == ([["nan"], ["bread"], ["None"]], [])
    trained = TrainedColumns.from_json(TrainedColumns.of(kept, ["text", "label"]).to_json())
    again = choose_columns("t.csv", ["text", "label"], rows, ColumnOptions(trained=trained))[0]
    assert again.labels_of(rows[0]) == ["nan"]


def test_commas_inside_labels_are_warned_of(caplog):
    names = ["genes, exons", "proteins, enzymes and others", "functional, design", "phylogeny", "RNA", "viruses"]
    lists = [list(one) for count in (1, 2, 3) for one in combinations(names, count)]
    cells = [*map(", ".join, lists)]
    choose_columns("t.csv", ["text", "label"], [["a text", cell] for cell in cells], ColumnOptions())
    assert "',' seems to be a part of labels: these parts never occur apart: 'genes, exons', 'proteins," in caplog.text
    assert "(--label-separator)" in caplog.text
    caplog.clear()
    plain = [cell.replace("s, e", "s e").replace("l, d", "l d") for cell in cells]
    choose_columns("t.csv", ["text", "label"], [["a text", cell] for cell in plain], ColumnOptions())
    assert not caplog.text
    some = [["a text", repr(one) if len(one) > 1 else one[0]] for one in lists[3:]]  # one label without brackets
    found, _ = choose_columns("t.csv", ["text", "label"], some, ColumnOptions())
    assert found.labels_of(some[-1]) == lists[-1]
    assert not caplog.text
    read_labels(cells)
    assert "labels: ',' seems to be a part of labels" in caplog.text


def test_entities_of_html_are_decoded_where_most_texts_have_them():
    rows = [[f"bread &amp; butter {n} &#39;new&#39;", "food"] for n in range(20)]
    found, said = choose_columns("t.csv", ["text", "label"], rows, ColumnOptions())
    assert found.text_of(rows[3]) == "bread & butter 3 'new'"
    assert said == ["texts: HTML entities such as &amp; are decoded, which 20 of 20 have"]
    trained = TrainedColumns.from_json(TrainedColumns.of(found, ["text", "label"]).to_json())
    again = choose_columns("n.csv", ["text"], [rows[0][:1]], ColumnOptions(trained=trained), labelled=False)[0]
    assert again.text_of(["R&amp;D"]) == "R&D"
    few = [["bread & butter", "food"]] * 20 + rows[:9]
    assert choose_columns("t.csv", ["text", "label"], few, ColumnOptions())[0].text_of(rows[0]) == rows[0][0]


def test_the_text_column_may_not_be_the_label_column():
    names = ["id", "text", "label"]
    with pytest.raises(InputError, match="column 'label' holds the texts and their labels"):
        choose_columns("t.csv", names, ROWS, ColumnOptions(text=["text", "label"], labels="label"))
    with pytest.raises(InputError, match="which column holds the labels"):  # the only guess is taken
        choose_columns("t.csv", names, ROWS, ColumnOptions(text=["label"]))
    assert choose_columns("t.csv", names, ROWS, ColumnOptions(text=["label"]), labelled=False)[0].texts == (2,)


@pytest.mark.parametrize(
    ("row", "warned"),
    [
        (lambda n: [f"words {n} a{n}|b", f"a{n}|b"], True),
        (lambda n: [f"words {n}: a{n}, b", [f"a{n}", "b"]], True),
        (lambda n: [f"words {n} food{n % 3}", f"food{n % 3}"], True),
        (lambda n: [f"words {n}. FOOD{n % 3}", f"Food{n % 3}"], True),
        (lambda n: [f"words {n} food{n % 3 if n % 5 else 3}", f"food{n % 3}"], False),
        (lambda n: [f"words {n} b, a{n}", f"a{n}|b"], False),
        (lambda n: [f"words {n} foodstuff", "food" if n % 2 else "stuff"], False),
    ],
)
def test_texts_that_contain_the_cell_of_their_labels(row, warned, caplog):
    choose_columns("t.csv", ["text", "label"], [row(n) for n in range(40)], ColumnOptions())
    assert ("texts contain their labels" in caplog.text) is warned


def test_several_columns_of_labels_are_joined():
    rows = [["a text", "food", "bread; rye"], ["another text", "garden", "herbs; soil"], ["a third", "food", "food"]]
    columns, _ = choose_columns("t.csv", ["text", "main", "sub"], rows, ColumnOptions(labels="main,sub"))
    assert [columns.labels_of(row) for row in rows] == [["food", "bread", "rye"], ["garden", "herbs", "soil"], ["food"]]
    trained = TrainedColumns.from_json(TrainedColumns.of(columns, ["text", "main", "sub"]).to_json())
    moved = choose_columns(
        "n.csv", ["sub", "text", "main"], [[*rows[0][2:], *rows[0][:2]]], ColumnOptions(trained=trained)
    )
    assert moved[0].labels_of([*rows[0][2:], *rows[0][:2]]) == ["food", "bread", "rye"]
    with pytest.raises(InputError, match="'x' has no column 'sub', which the model was trained on"):
        choose_columns("'x'", ["text", "main"], [row[:2] for row in rows], ColumnOptions(trained=trained))

"""Texts in one file, lists of labels in another."""

import gzip
import json

import pytest

from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.prepare import main
from xmc_tf.tables.preparation import PrepareOptions, prepare
from xmc_tf.tables.reading.options import SourceOptions
from xmc_tf.tables.splits import SplitOptions
from xmc_tf.tables.store import TableStore

TEXTS = ["rye bread, with sourdough", "", 'herbs "of the\tbalcony"', "tomatoes", "no label"]


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    return path


def lists(path, lines, encoding="utf-8"):
    path.write_bytes("\n".join(lines).encode(encoding))
    return path


def read(texts, labels, database, **options):
    """Return (text, labels) of all documents."""
    chosen = PrepareOptions(SourceOptions(label_lists=labels), splits=SplitOptions(0, 0), max_bad_rows=0.5, **options)
    store = prepare(texts, database, chosen)
    names = store.names
    rows = zip(store.texts("train"), store.labels("train"), strict=True)
    return store, [(text, {names[at] for at in row.indices}) for text, row in rows]


@pytest.mark.parametrize(
    "lines", [["1 12", "3", "12", "1", ""], ["1\t12", "3", "12", "1\t", ""], ["1;12", "3", "12;", "1", ""]]
)
def test_lines_of_both_files_belong_together(texts, tmp_path, lines):
    store, found = read(texts, lists(tmp_path / "labels.txt", [*lines[:4], " "]), tmp_path / "out.sqlite")
    assert found == [(TEXTS[0], {"1", "12"}), (TEXTS[2], {"12"}), (TEXTS[3], {"1"})]
    bad = store.connection.execute("SELECT line, reason FROM bad_rows ORDER BY line").fetchall()
    assert bad == [(2, "no text"), (5, "no label")]


def test_numbers_get_their_names(texts, tmp_path):
    names = lists(tmp_path / "names.txt", ["baking", "bread", "herbs"])
    labels = lists(tmp_path / "labels.txt", ["0 1", "1", "2", "2", "0"])
    _, found = read(texts, labels, tmp_path / "out.sqlite", label_names=names)
    assert [labels for _, labels in found] == [{"baking", "bread"}, {"herbs"}, {"herbs"}, {"baking"}]


def test_a_command_reads_names_and_a_test_table(texts, tmp_path, capsys):
    labels = lists(tmp_path / "labels.txt", ["Brot|Gebäck", "x", "Kräuter", "Gebäck|Kräuter", "x"], "latin-1")
    more = tmp_path / "test_texts.txt.gz"
    more.write_bytes(gzip.compress(b"a test\nanother\n"))
    of_more = lists(tmp_path / "test_labels.txt", ["Brot", "Brot|x"], "utf-8-sig")
    flags = ["--label-lists", labels, "--test-table", more, "--test-label-lists", of_more, "--max-bad-rows", "0.5"]
    main([str(one) for one in (texts, *flags, "--json")])
    assert json.loads(capsys.readouterr().out)["documents"] == {"train": 4, "validation": 0, "test": 2}
    store = TableStore.open(tmp_path / "texts.sqlite")
    assert set(store.names) == {"Brot", "Gebäck", "Kräuter", "x"}
    assert list(store.texts("test")) == ["a test", "another"]
    # Other lists for the same texts are read by the same command.
    main([str(one) for one in (texts, "--label-lists", lists(tmp_path / "new.txt", ["a"] * 5), "--max-bad-rows", "1")])
    assert TableStore.open(tmp_path / "texts.sqlite").names == ["a"]


def test_files_that_do_not_fit_are_refused(texts, tmp_path):
    short, right = lists(tmp_path / "short.txt", ["1", "2"]), lists(tmp_path / "right.txt", ["1"] * 5)
    error = refused(r"short\.txt does not fit", read, texts, short, tmp_path / "out.sqlite")
    assert (error.expected, error.received) == ("5 lines, one per text", "2")
    refused(r"missing\.txt", read, texts, tmp_path / "missing.txt", tmp_path / "out.sqlite")
    refused("do not fit together", read, texts, right, tmp_path / "out.sqlite", test_table=texts)
    refused("do not fit together", prepare, texts, tmp_path / "out.sqlite", PrepareOptions(test_label_lists=right))
    with pytest.raises(InputError, match="--format"):
        prepare(texts, tmp_path / "out.sqlite", PrepareOptions(SourceOptions("csv", label_lists=right)))
    assert not (tmp_path / "out.sqlite").exists()

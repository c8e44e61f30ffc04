"""Lines of labels and text: what is read, and what is refused with its line."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused, tried
from xmc_tf.data import LabelledText


def written(folder, text):
    path = folder / "in.txt"
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_labels_and_texts_of_each_line(tmp_path):
    path = written(tmp_path, "1,0\tone text\n\tno label\r\n2\tthird, with commas\textra\n")
    layout = LabelledText()
    assert layout.texts(path) == ["one text", "no label", "third, with commas"]
    Y, R = layout.labels(path, 4)
    assert R is None
    assert Y.toarray().tolist() == [[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]
    assert (Y.dtype, Y.has_sorted_indices) == (np.float32, True)


def test_other_fields_and_tabs_in_texts(tmp_path):
    path = written(tmp_path, "id\ttext\twith tabs\n")
    assert LabelledText(text_pos=1, maxsplit=1).texts(path) == ["text\twith tabs"]
    assert LabelledText(text_pos=0, label_pos=1).texts(path) == ["id"]
    assert LabelledText(text_pos=2).texts(path) == ["with tabs"]
    refused("--text-pos is out of range", LabelledText, text_pos=-1)


def test_values_and_relevances(tmp_path):
    path = written(tmp_path, "2:3:0.5,0::0.25\tone\n1:1:1\ttwo\n")
    Y, R = LabelledText().labels(path, 3)
    assert Y.toarray().tolist() == [[1, 0, 3], [0, 1, 0]]
    assert R.toarray().tolist() == [[0.25, 0, 0.5], [0, 1, 0]]
    assert np.array_equal(Y.indices, R.indices)


def test_a_label_twice_is_added_up_as_scipy_does(tmp_path):
    Y, R = LabelledText().labels(written(tmp_path, "1:1:2,1:1:3\ttext\n"), 2)
    assert (Y.toarray().tolist(), R.toarray().tolist()) == ([[0, 2]], [[0, 5]])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0\ta\n1 b\n", r"line 2 has too few fields(.|\n)*expected: 2 fields(.|\n)*received: 1 in '1 b'"),
        ("0\ta\n5\tb\n", r"line 2: not a valid label number(.|\n)*from 0 to 4(.|\n)*received: '5'"),
        ("-1\ta\n", "line 1: not a valid label number"),
        ("x\ta\n", "line 1: not a valid label number"),
        ("9" * 5000 + "\ta\n", "line 1: not a valid label number"),
        ("1,,2\ta\n", "line 1: not a valid label number"),
        ("1\ta\n1:1:1\tb\n", "line 2: a label cannot be read"),
        ("1:1:1\ta\n1\tb\n", "line 2: a label cannot be read(.|\n)*number:value:relevance"),
        ("1:1:nan\ta\n", "line 1: a label cannot be read"),
        ("1:one:1\ta\n", "line 1: a label cannot be read"),
    ],
)
def test_lines_that_cannot_be_read(tmp_path, text, said):
    refused(said, LabelledText().labels, written(tmp_path, text), 5)


WORDS = st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"]))


@given(st.lists(st.tuples(st.lists(st.integers(0, 9), unique=True), WORDS), min_size=1))
def test_what_is_written_is_read(tmp_path_factory, rows):
    text = "".join(f"{','.join(map(str, labels))}\t{words}\n" for labels, words in rows)
    path = written(tmp_path_factory.mktemp("lines"), text)
    assert LabelledText().texts(path) == [words for _, words in rows]
    Y, _ = LabelledText().labels(path, 10)
    assert [np.flatnonzero(row).tolist() for row in Y.toarray()] == [sorted(labels) for labels, _ in rows]


@given(st.text(min_size=1) | st.text("012\t,a", min_size=1))
def test_anything_is_read_or_refused(tmp_path_factory, outcomes, text):
    tried(outcomes, "in.txt", LabelledText().labels, written(tmp_path_factory.mktemp("any"), text), 3)

"""Label names, one per line, and labels chosen in a file, by name or by number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused
from xmc_tf.data import load_label_choice, load_names


def test_names_are_lines_and_a_repeated_one_is_warned_of(tmp_path, caplog):
    path = tmp_path / "labels.txt"
    path.write_bytes("Möwen\r\n birds \n".encode())
    assert load_names(path, count=2) == ["Möwen", " birds "]
    path.write_bytes(b"a\nb\na\nb\na\n")
    assert load_names(path) == ["a", "b", "a", "b", "a"]
    assert "2 names occur more than once, the first is 'a' on lines 1 and 3" in caplog.text


@pytest.mark.parametrize(
    ("content", "count", "message"),
    [
        (b"a\nb\n", 1234, r"labels\.txt(.|\n)*expected: 1,234 lines(.|\n)*received: 2 lines"),
        (b"a\n\nb", None, "line 2 is empty"),
        (b"a\n \t\n", None, "line 2 is empty"),
        (b"a\nb\nm\xf6we", None, "line 3 is not UTF-8"),
    ],
)
def test_bad_names_are_reported_with_their_line(tmp_path, content, count, message):
    (tmp_path / "labels.txt").write_bytes(content)
    refused(message, load_names, tmp_path / "labels.txt", count=count)


NAMES = ["forest", "3", "forest", "harbour & sea"]


def choice(tmp_path, text, names=NAMES):
    path = tmp_path / "labels.txt"
    path.write_text(text, encoding="utf-8")
    return load_label_choice(path, names, 4).tolist()


def test_names_come_before_numbers(tmp_path):
    assert choice(tmp_path, "forest\n") == [0, 2]
    assert choice(tmp_path, "3\n 0 \n\n3") == [0, 1]
    assert choice(tmp_path, "harbour & sea\r\n") == [3]
    assert choice(tmp_path, "3\n1\n1", names=None) == [1, 3]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("forest\nforests\n", r"labels\.txt, line 2: not a label(.|\n)*a label's name, or a number from 0 to 3"),
        ("4", "line 1"),
        ("-1", "line 1"),
        ("9" * 5000, "line 1"),
        ("²", "line 1"),
        ("\n \n", "contains no labels"),
        ("", "is empty"),
    ],
)
def test_lines_that_are_no_labels(tmp_path, text, said):
    refused(said, choice, tmp_path, text)


@given(st.lists(st.integers(0, 3), min_size=1))
def test_any_choice_of_numbers(tmp_path_factory, numbers):
    text = "".join(f"{number}\n" for number in numbers)
    assert choice(tmp_path_factory.mktemp("choice"), text, names=None) == sorted(set(numbers))

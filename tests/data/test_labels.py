"""Label names: one per line, as many as labels."""

import logging

import pytest

from xmc_tf.common.errors import InputError
from xmc_tf.data import load_names


@pytest.fixture
def write(tmp_path):
    def _write(content: bytes):
        (tmp_path / "labels.txt").write_bytes(content)
        return tmp_path / "labels.txt"

    return _write


def test_names(write):
    assert load_names(write("Möwen\r\n birds \n".encode()), count=2) == ["Möwen", " birds "]


def test_count_mismatch_says_both_counts(write):
    with pytest.raises(InputError, match=r"labels\.txt(.|\n)*expected: 1,234 lines(.|\n)*received: 2 lines"):
        load_names(write(b"a\nb\n"), count=1234)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a\n\nb", "line 2 is empty"),
        (b"a\n \t\n", "line 2 is empty"),
        (b"a\nb\nm\xf6we", "line 3 is not UTF-8"),
    ],
)
def test_bad_names_are_reported_with_their_line(write, content, words):
    with pytest.raises(InputError, match=words):
        load_names(write(content))


def test_same_name_twice_is_warned_of(write, caplog):
    with caplog.at_level(logging.WARNING):
        assert load_names(write(b"a\nb\na\nb\na\n")) == ["a", "b", "a", "b", "a"]
    assert "2 names occur more than once, the first is 'a' on lines 1 and 3" in caplog.text

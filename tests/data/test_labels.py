"""Label names: one per line, as many as labels."""

import pytest

from tests.refusals import refused
from xmc_tf.data import load_names


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

"""Tests of the JSON reader: all errors name the file, and nothing waits, recurses or overflows."""

import json
import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import xmc_tf
from tests.refusals import tried
from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import MOST_LEVELS, parse_json, read_json
from xmc_tf.common.regular import open_regular

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def refused(path, content, **options):
    """Return the error message for a file with this content."""
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_json(path, **options)
    message = str(caught.value)
    assert message.startswith(str(path))
    return message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not JSON"),
        (b"{", "line 1, column 2"),
        (b"\xff\xfe{}", "byte 0 is not UTF-8"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 500 + b"1" + b"}" * 500, "nested too deeply"),
        (b"[]", "does not hold a JSON object"),
        (b"3", "received: a whole number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "too large"),
        (b'{"a": -9223372036854775809}', "too large"),
        (b'{"a": NaN}', "NaN is not a finite number"),
        (b'{"a": -Infinity}', "-Infinity is not a finite number"),
        (b'{"a": 1e999}', "too large"),
    ],
)
def test_invalid_json_is_refused(tmp_path, content, words):
    assert words in refused(tmp_path / "params.json", content, fix="copy it again")


def test_a_repeated_key_is_refused_if_asked(tmp_path):
    assert "k is given twice" in refused(tmp_path / "p.json", b'{"k": 1, "k": 2}', unique_keys=True)
    assert read_json(tmp_path / "p.json") == {"k": 2}


def test_a_file_that_is_too_long_is_not_read_to_its_end(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte of zeros
    with pytest.raises(InputError, match=r"huge\.json is too long"):
        read_json(path, limit=1000)


def test_files_of_other_libraries_may_have_large_numbers_and_nan(tmp_path):
    path = tmp_path / "tokenizer_config.json"
    path.write_text('{"model_max_length": 1000000000000000019884624838656, "x": Infinity}')
    assert read_json(path, foreign=True)["x"] == float("inf")
    assert "too large" in refused(path, b'{"a": ' + b"9" * 5000 + b"}", foreign=True)


def test_anything_but_a_regular_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "circle.json").symlink_to(tmp_path / "circle.json")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket.json"))
        kinds = {"pipe.json": "a pipe", "folder.json": "a folder", "socket.json": "a socket"}
        for name, kind in kinds.items():
            with pytest.raises(InputError, match=f"{name} is not a regular file\n(.|\n)*{kind}"):
                read_json(tmp_path / name)
    for path, words in [("/dev/zero", "a device"), (tmp_path / "circle.json", "cannot be opened")]:
        with pytest.raises(InputError, match=words):
            read_json(path)
    for path in (tmp_path / "none.json", tmp_path / "folder.json/x", "/dev/null/x"):
        with pytest.raises(InputError, match="does not exist"):
            read_json(path)
    with pytest.raises(InputError, match="cannot be opened"):
        open_regular(tmp_path / ("n" * 300))


def test_looking_at_a_pipe_does_not_wake_its_writer(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    opened = threading.Event()

    def write():
        with pipe.open("wb"):
            opened.set()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    with pytest.raises(InputError, match="a pipe"):
        open_regular(pipe)
    assert not opened.is_set()
    pipe.open("rb").close()  # let the writer end
    writer.join(60)


def test_nesting_is_limited_at_any_stack_depth():
    fine = "[" * MOST_LEVELS + "]" * MOST_LEVELS
    deep = f"[{fine}]"

    def at_depth(frames):
        if frames:
            return at_depth(frames - 1)
        assert parse_json(fine, of="x", top=list)
        with pytest.raises(InputError, match="nested too deeply"):
            parse_json(deep, of="x", top=list)
        return True

    assert at_depth(0)
    assert at_depth(300)


@given(VALUES)
def test_values_are_read_as_by_the_json_module(value):
    assert parse_json(json.dumps(value), of="x", top=None) == value
    assert parse_json(json.dumps(value).encode(), of="x", top=None, unique_keys=True) == value


@given(st.binary(max_size=60) | st.text(alphabet='[]{}:,"\\0123456789eE.-NaIfnitynul ', max_size=60))
def test_anything_else_is_an_input_error(outcomes, content):
    tried(outcomes, "x", parse_json, content, of="x", top=None)  # any other error fails the test


def test_no_module_reads_a_file_of_json_by_itself():
    """Only text that a library or this process has made may be read with `json.loads`."""
    allowed = {
        "common/json_files.py",
        "encoder/code_points.py",  # just written by the tokenizers library
        "encoder/graph_tokenizer.py",
        "encoder/unigram.py",
        "server/labelling/store.py",  # just made by SQLite
    }
    root = Path(xmc_tf.__file__).parent
    sources = {str(path.relative_to(root)): path.read_text() for path in root.rglob("*.py")}
    found = {name for name, source in sources.items() if "json.load(" in source or "json.loads(" in source}
    assert len(found) > 3
    assert found <= allowed

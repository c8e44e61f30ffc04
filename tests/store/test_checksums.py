"""Tests of the records of a folder's files, and of the errors after a change."""

import json
import os
import zlib

import numpy as np
import pytest

from tests.refusals import refused
from xmc_tf.store import checksums
from xmc_tf.store.checksums import (
    Records,
    checksum_of,
    crc_of_file,
    is_unchanged,
    record_files,
    verify,
)


@pytest.fixture
def folder(tmp_path):
    """Return a folder whose header has records of all its files."""
    (tmp_path / "m" / "part" / "deep").mkdir(parents=True)
    (tmp_path / "m" / "names.txt").write_bytes(b"one\ntwo\n")
    (tmp_path / "m" / "part" / "a.bin").write_bytes(bytes(range(256)) * 9)
    (tmp_path / "m" / "part" / "deep" / "b.bin").write_bytes(b"")
    write_header(tmp_path / "m")
    return tmp_path / "m"


def write_header(folder, **more):
    content = {"format": "xmc_tf.model", "version": 1, "files": record_files(folder, exclude=["params.json"]), **more}
    content["checksum"] = checksum_of(content)
    (folder / "params.json").write_text(json.dumps(content))


def read_all(place, **options):
    verify(place, **options)
    return True


def test_records_are_lengths_and_checksums_in_the_order_of_names(folder):
    records = json.loads((folder / "params.json").read_text())["files"]
    assert records == {
        "names.txt": {"bytes": 8, "crc32": f"{zlib.crc32(b'one' + bytes([10]) + b'two' + bytes([10])):08x}"},
        "part/a.bin": {"bytes": 2304, "crc32": f"{zlib.crc32(bytes(range(256)) * 9):08x}"},
        "part/deep/b.bin": {"bytes": 0, "crc32": "00000000"},
    }
    assert list(records) == sorted(records)


@pytest.mark.parametrize("place", [".", "part", "part/deep", "names.txt", "part/../part", "part/deep/.."])
def test_unchanged_files_pass(folder, place):
    assert read_all(folder / place)


def test_a_change_is_named_with_both_checksums(folder):
    path = folder / "part" / "a.bin"
    expected = crc_of_file(path)
    content = bytearray(path.read_bytes())
    content[77] ^= 4
    path.write_bytes(content)
    error = refused((), read_all, folder / "part")
    assert str(path) in error.problem
    assert expected in error.expected
    assert crc_of_file(path) in error.received
    assert "copy the model again" in error.fix
    assert "train it again" in error.fix
    assert read_all(folder / "names.txt")  # only the files that are read are compared
    assert read_all(folder / "part", skip=(".bin",))


def test_another_size_and_a_missing_file_are_reported(folder):
    with (folder / "part" / "a.bin").open("ab") as file:
        file.write(b"x")
    refused(r"its size has changed.*\n.*2,304 bytes\n.*2,305 bytes", read_all, folder / "part")
    (folder / "part" / "a.bin").unlink()
    refused(r"a\.bin is missing", read_all, folder / "part")


def test_a_pipe_in_place_of_a_file_does_not_block(folder):
    (folder / "names.txt").unlink()
    os.mkfifo(folder / "names.txt")
    refused("something that is not a file", read_all, folder)


def test_links_to_a_part_and_out_of_it(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder / "part")
    assert read_all(tmp_path / "link")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "part").symlink_to(folder / "part")
    (folder / "part" / "a.bin").write_bytes(b"x")
    for place in (tmp_path / "link", tmp_path / "other" / "part", tmp_path / "link" / "deep" / ".."):
        refused(r"a\.bin is damaged", read_all, place)


def test_folders_without_records_pass(tmp_path):
    (tmp_path / "a").write_text("x")
    assert read_all(tmp_path)
    assert read_all(None)
    for content in ('{"model": "XLinear"}', "[1]", "{", "[" * 100_000, '{"files": {"a": {"bytes": 9, "crc32": "0"}}}'):
        (tmp_path / "params.json").write_text(content)
        assert read_all(tmp_path)


@pytest.mark.parametrize(
    "files",
    [
        [],
        {"a": 1},
        {"a": {"bytes": "1", "crc32": "00000000"}},
        {"a": {"bytes": 1, "crc32": 0}},
        {"/etc/passwd": {"bytes": 1, "crc32": "00000000"}},
        {"b/../../c": {"bytes": 1, "crc32": "00000000"}},
        {"a\0": {"bytes": 1, "crc32": "00000000"}},
    ],
)
def test_invalid_records_are_refused(tmp_path, files):
    (tmp_path / "params.json").write_text(json.dumps({"format": "xmc_tf.model", "version": 1, "files": files}))
    refused(r"params\.json: the record of the file", Records.read, tmp_path)


def test_a_header_checks_itself_but_not_its_layout():
    content = {"b": [1, 2.5, "ü"], "a": None}
    assert is_unchanged(content) is None
    content["checksum"] = checksum_of(content)
    assert is_unchanged(dict(reversed(content.items())))
    assert is_unchanged(json.loads(json.dumps(content, indent=8)))
    assert not is_unchanged({**content, "a": 1})


def test_a_long_file_is_compared_before_it_is_read(folder):
    path = folder / "part" / "a.bin"
    path.write_bytes(bytes(5_000_000))
    write_header(folder)
    path.write_bytes(bytes(4_999_999) + b"x")
    refused(r"a\.bin is damaged", read_all, folder)


def test_the_checksum_of_a_long_file_depends_on_each_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(checksums, "_PIECE", 1 << 16)
    path, content = tmp_path / "long", bytearray(np.random.default_rng(0).bytes(200_000))
    path.write_bytes(content)
    right = crc_of_file(path)
    assert crc_of_file(path) == right
    for place in (0, 1 << 16, 140_000, 199_999):
        content[place] ^= 1
        path.write_bytes(content)
        assert crc_of_file(path) != right
        content[place] ^= 1

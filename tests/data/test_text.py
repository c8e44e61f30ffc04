"""Texts by line: the same lines as cutting the whole file by hand gives, whatever their ends and bytes."""

import gzip
import logging
import os
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused
from xmc_tf.data import JoinedTexts, TextFile, text


def naive(data: bytes) -> list[bytes]:
    """Return the documents of a file, as the format defines them."""
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
    lines = data.split(b"\n")
    if lines[-1] == b"" and len(lines) > 1:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def write(folder, data: bytes):
    path = folder / "X.txt"
    path.write_bytes(data)
    return path


pieces = st.sampled_from([
    b"\n", b"\r\n", b"\r", b"a", b"two words", "Möwe 😀".encode(), b"\x00", b"\xff", b"\xc3", b" ", b"\xef\xbb\xbf",
])  # fmt: skip


@given(parts=st.lists(pieces, min_size=1, max_size=30), size=st.integers(1, 5), data=st.data())
def test_same_lines_as_by_hand(tmp_path_factory, parts, size, data):
    content = b"".join([b"x", *parts]) if parts[0] == b"\xff" else b"".join(parts)
    texts = TextFile(write(tmp_path_factory.mktemp("text"), content))
    lines = naive(content)
    assert len(texts) == len(lines)
    assert texts.lines() == lines
    assert list(texts) == [line.decode("utf-8", "replace") for line in lines]
    assert [line for batch in texts.batches(size) for line in batch] == lines
    assert all(len(batch) == size for batch in list(texts.batches(size))[:-1])
    start = data.draw(st.integers(0, len(lines)))
    stop = data.draw(st.integers(start, len(lines) + 2))
    assert texts.lines(start, stop) == lines[start:stop]
    assert [line for batch in texts.batches(size, start, stop) for line in batch] == lines[start:stop]
    index = data.draw(st.integers(-len(lines), len(lines) - 1))
    assert texts[index] == lines[index].decode("utf-8", "replace")
    assert texts[::2] == list(texts)[::2]
    assert texts[start:stop] == list(texts)[start:stop]


@pytest.mark.parametrize("piece", [1, 2, 3, 7])
def test_line_ends_at_the_seams_of_the_pieces(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(text, "PIECE", piece)
    content = b"\n\nab\r\nc\n\r\nlast one"
    texts = TextFile(write(tmp_path, content))
    assert texts.lines() == naive(content) == [b"", b"", b"ab", b"c", b"", b"last one"]
    assert texts.check() == 0


def test_beyond_the_end(tmp_path):
    texts = TextFile(write(tmp_path, b"a\nb\n"))
    with pytest.raises(IndexError, match="document 2 of 2"):
        texts[2]
    with pytest.raises(IndexError):
        texts[-3]
    assert texts.lines(2) == []
    assert texts.lines(5, 9) == []


def test_invalid_utf8_has_a_defined_answer_and_a_warning(tmp_path, caplog):
    texts = TextFile(write(tmp_path, "gut\nm\xf6we\n\nna\xefve\xff\n".encode("latin-1")))
    assert texts[1] == "m\ufffdwe"
    with caplog.at_level(logging.INFO):
        assert texts.check() == 2
    warning, empty = caplog.records
    assert warning.levelno == logging.WARNING
    assert "X.txt: 2 of 4 lines are not UTF-8, the first is line 2" in warning.getMessage()
    assert "1 of 4 lines are empty" in empty.getMessage()


def test_travels_to_other_processes_by_name(tmp_path):
    texts = TextFile(write(tmp_path, b"a\nb"), name="names")
    again = pickle.loads(pickle.dumps(texts))
    assert (again.lines(), again.name) == ([b"a", b"b"], "names")


def test_is_mapped_and_not_read(tmp_path):
    path = tmp_path / "large.txt"
    with path.open("wb") as file:
        file.truncate(64 << 20)  # a hole: one line of 64 MB that takes no place on disk
    texts = TextFile(path)
    assert len(texts) == 1
    assert texts._offsets.nbytes == 16
    assert texts.lengths.tolist() == [(64 << 20) + 1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["is empty", "one document per line"]),
        (gzip.compress(b"text", mtime=0), ["is not a text file", "a gzip file", "gunzip"]),
        (b"BZh91AY&SYabc", ["a bzip2 file"]),
        ("text\n".encode("utf-16"), ["text in UTF-16", "iconv"]),
    ],
)
def test_files_that_are_no_text(tmp_path, content, words):
    refused(["texts: ", "X.txt", *words], TextFile, write(tmp_path, content))


def test_matrix_given_for_text(tmp_path):
    np.savez(tmp_path / "X.npz", a=np.zeros(3))
    refused(r"X\.npz is not a text file(.|\n)*a zip or \.npz file(.|\n)*-x", TextFile, tmp_path / "X.npz")
    np.save(tmp_path / "X.npy", np.zeros(3))
    refused(r"X\.npy is not a text file", TextFile, tmp_path / "X.npy")


def test_what_is_no_file(tmp_path):
    refused("is a folder", TextFile, tmp_path)
    write(tmp_path, b"a")
    refused(r"Xx\.txt does not exist(.|\n)*did you mean .*X\.txt", TextFile, tmp_path / "Xx.txt")
    refused("there is no folder", TextFile, tmp_path / "nowhere" / "X.txt")
    os.mkfifo(tmp_path / "pipe")
    refused("not a regular file", TextFile, tmp_path / "pipe")


def test_words_that_begin_like_a_compressed_file(tmp_path):
    assert TextFile(write(tmp_path, b"BZhang and others\n"))[0] == "BZhang and others"


def test_a_file_in_another_encoding_is_refused(tmp_path):
    path = tmp_path / "X.txt"
    path.write_bytes("Bäume und Wälder\n".encode("latin-1") * 40 + b"plain\n" * 60)
    refused(r"is not UTF-8(.|\n)*40 of 100 lines(.|\n)*iconv -f WINDOWS-1252", TextFile(path).check)


def test_joined_texts_are_like_a_list(tmp_path):
    joined, expected = JoinedTexts([TextFile(write(tmp_path, b"a\nb\nc\n")), ["d", b"e"]]), list("abcde")
    assert list(joined) == expected
    assert [joined[at] for at in range(-5, 5)] == [expected[at] for at in range(-5, 5)]
    assert list(joined[1:4]) == expected[1:4]
    assert joined[1:3][-1] == "c"
    for texts in (joined, joined.parts[0]):
        with pytest.raises(ValueError, match="step"):
            texts[::2]
    for at in (-6, 5):
        with pytest.raises(IndexError):
            joined[at]


@pytest.mark.parametrize("change", ["truncated", "overwritten", "extended"])
def test_a_file_that_changes_while_it_is_read_is_an_error(change, tmp_path):
    """Mapped, it would end the process without a message if it became shorter, and mix two contents otherwise."""
    path = tmp_path / "x.txt"
    path.write_bytes(b"one document\n" * 100_000)
    texts = TextFile(path)
    assert texts[99_999] == "one document"
    os.utime(path, ns=(0, 0))
    before = TextFile(path)
    if change == "truncated":
        os.truncate(path, 5)
    with path.open("r+b" if change == "overwritten" else "ab") as file:
        file.write(b"" if change == "truncated" else b"another")
    reads = (
        lambda: before[0],
        lambda: before[99_999],
        lambda: before[5:9],
        before.check,
        lambda: list(before.batches(7)),
    )
    for read in reads:
        refused(r"x\.txt changed while it was read", read)
    assert TextFile(path)[0] == {"truncated": "one d", "overwritten": "anotherument"}.get(change, "one document")


TABLES = {
    "a.csv": 'text,label\n"first, with a comma",3\nsecond,4\n',
    "b.csv": "the first,1\nthe second,2\nthe third,1\n",  # no header, but the name and the same columns everywhere
    "c.txt": "Label\tText\n3\tthe first\n4\tthe second\n",
    "d.tsv": "12\tthe first\n13\tthe second\n",
    "e.txt": "id;title;labels\n1;x;y\n",
    "f.csv": "\ufefftext,label\r\nthe first,3\r\n",
}
TEXTS = {
    "a.txt": "one, two\nthree, four\nfive, six\n",
    "b.txt": "text\nand another text\n",
    "c.txt": "a title, a text, a label, and so on\nand more\n",
    "d.csv": "one text\nanother, with a comma\n",
    "e.txt": "text",
    "g.txt": "title, author, and year\nare short\n",
    "h.txt": "1:1:2\ttext\nand a tab\n",
    "f.txt": "Labels, as everybody knows who has ever had to do with them, are hard to give\nmore\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_refused(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(TABLES[name].encode())
    error = refused("is a table, not a file of texts", TextFile, path)
    assert f"xmc-tf train {path}" in error.fix
    TextFile(path, name="label names")  # names of labels are no documents


@pytest.mark.parametrize("name", TEXTS)
def test_texts_are_taken(name, tmp_path, caplog):
    path = tmp_path / name
    path.write_text(TEXTS[name])
    assert len(TextFile(path)) == len(TEXTS[name].splitlines())
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * name.endswith(".csv")

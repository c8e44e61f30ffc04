"""Token stores: what was written comes back, padded as a loop would pad it, and nothing damaged is read."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused
from xmc_tf.data import TokenStore

small = st.lists(st.integers(0, 65_535), max_size=6)
any_size = st.lists(st.one_of(st.integers(0, 65_535), st.integers(65_536, 2**31 - 1)), max_size=6)


def write(folder, *chunks, size=1 << 16, **about):
    """Return a store with these documents, written chunk by chunk."""
    with TokenStore.create(folder, about, size) as writer:
        for chunk in chunks:
            writer.write(chunk)
    return TokenStore.open(folder)


def naive(documents, pad_id, width):
    """Pad documents in a loop."""
    ids = [list(document) + [pad_id] * (width - len(document)) for document in documents]
    mask = [[1] * len(document) + [0] * (width - len(document)) for document in documents]
    return np.array(ids).reshape(len(documents), width), np.array(mask).reshape(len(documents), width)


@given(chunks=st.lists(st.lists(st.one_of(small, any_size), max_size=5), max_size=4))
def test_comes_back_as_it_was_written(tmp_path_factory, chunks):
    largest = max((number for chunk in chunks for document in chunk for number in document), default=0)
    store = write(tmp_path_factory.mktemp("store") / "tokens", *chunks, size=largest + 1)
    documents = [document for chunk in chunks for document in chunk]
    assert len(store) == len(documents)
    assert store.lengths.dtype == np.int32
    assert store.lengths.tolist() == [len(document) for document in documents]
    assert [store[i].tolist() for i in range(len(store))] == documents
    assert store.dtype == (np.uint16 if largest < 2**16 else np.int32)


def test_the_size_of_the_vocabulary_decides_the_bytes_of_an_id(tmp_path):
    narrow, wide = (write(tmp_path / str(size), [[1, 2], [65_535]], size=size) for size in (65_536, 65_537))
    assert (narrow.dtype, wide.dtype) == (np.uint16, np.int32)
    assert narrow.fingerprint == wide.fingerprint


@given(
    documents=st.lists(any_size, min_size=1, max_size=8),
    pad_id=st.integers(0, 100),
    extra=st.integers(0, 3),
    d=st.data(),
)
def test_padded_as_by_a_loop(tmp_path_factory, documents, pad_id, extra, d):
    store = write(tmp_path_factory.mktemp("store") / "tokens", documents, size=2**31)
    rows = d.draw(st.lists(st.integers(0, len(documents) - 1), max_size=10))
    chosen = [documents[row] for row in rows]
    longest = max((len(document) for document in chosen), default=0)
    for to in (None, longest + extra):
        ids, mask = store.padded(rows, pad_id=pad_id, to=to)
        expected_ids, expected_mask = naive(chosen, pad_id, longest if to is None else to)
        assert ids.dtype == mask.dtype == np.int32
        np.testing.assert_array_equal(ids, expected_ids)
        np.testing.assert_array_equal(mask, expected_mask)


def test_fingerprint_is_of_the_documents_and_not_of_how_they_came(tmp_path):
    one = write(tmp_path / "one", [[1, 2], [3], []], text="a")
    assert one.about == {"text": "a"}
    assert one.fingerprint == write(tmp_path / "two", [np.array([1, 2], np.uint8)], [[3]], [[]]).fingerprint
    others = [
        write(tmp_path / "other", chunk).fingerprint for chunk in ([[1], [2, 3], []], [[1, 2], [3]], [[1, 2], [4], []])
    ]
    assert len({one.fingerprint, *others}) == 4


def test_nothing_appears_unless_all_is_written(tmp_path):
    folder = tmp_path / "tokens"
    with pytest.raises(ZeroDivisionError), TokenStore.create(folder) as writer:
        writer.write([1 // 0] for _ in range(1))
    assert list(tmp_path.iterdir()) == []
    write(folder, [[5]])
    assert TokenStore.open(folder)[0].tolist() == [5]
    assert write(folder, [[7, 8]])[0].tolist() == [7, 8]
    assert [path.name for path in tmp_path.iterdir()] == ["tokens"]


@pytest.mark.parametrize("name", ["ids.npy", "lengths.npy", "windows.npy", "store.json"])
def test_cut_changed_and_missing_files_are_named(tmp_path, name):
    folder = tmp_path / "tokens"
    with TokenStore.create(folder) as writer:
        writer.write([[1, 2], [3], [4]], np.array([1, 2]))
    path = folder / name
    content = path.read_bytes()
    path.write_bytes(content[:-3])
    refused(name, TokenStore.open, folder)
    path.unlink()
    refused(name, TokenStore.open, folder)
    changed = bytearray(content)
    changed[-1 if name != "store.json" else 0] ^= 1
    path.write_bytes(changed)
    refused(name, TokenStore.open, folder)
    path.write_bytes(content)
    assert TokenStore.open(folder).nr_documents == 2


def test_documents_of_several_windows(tmp_path):
    with TokenStore.create(tmp_path / "tokens") as writer:
        writer.write([[1, 2], [3], [4, 5, 6]], np.array([1, 2]))
        writer.write([[7], [8, 9], []], np.array([2, 1]))
    store = TokenStore.open(tmp_path / "tokens")
    assert (len(store), store.nr_documents, store.splits.tolist()) == (6, 4, [0, 1, 3, 5, 6])
    assert store.document_lengths.tolist() == [2, 4, 3, 0]
    assert store.document_of(np.arange(6)).tolist() == [0, 1, 1, 2, 2, 3]
    windows, splits = store.windows_of(np.array([2, 0, 1]))
    assert (windows.tolist(), splits.tolist()) == ([3, 4, 0, 1, 2], [0, 2, 3, 5])
    assert "4 documents, 6 windows, 9 tokens" in repr(store)


def test_windows_of_one_document_or_of_several_differ(tmp_path):
    rows, stores = [[1, 2], [3], [4]], []
    for name, counts in (("plain", None), ("ones", [1, 1, 1]), ("two", [1, 2]), ("other", [2, 1])):
        with TokenStore.create(tmp_path / name) as writer:
            writer.write(rows, None if counts is None else np.array(counts))
        stores.append(TokenStore.open(tmp_path / name))
    plain, ones, two, other = (store.fingerprint for store in stores)
    assert plain == ones
    assert len({plain, two, other}) == 3
    assert not (tmp_path / "ones" / "windows.npy").exists()

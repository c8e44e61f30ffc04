"""The file of vectors: filled by several workers, block by block, and taken up where it was left."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collective.threads import on_ranks
from tests.refusals import refused
from xmc_tf.data import TokenStore
from xmc_tf.encoder import Encoder
from xmc_tf.pipeline import embeddings
from xmc_tf.pipeline.embeddings import copy_of_length_one, embed_documents, rows_of_length
from xmc_tf.pipeline.row_blocks import RowFile
from xmc_tf.ranks.solo import Solo

DIM = 3


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Documents of one to nine tokens."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("store") / "tokens"
    with TokenStore.create(folder) as writer:
        writer.write([rng.integers(1, 50, rng.integers(1, 10)) for _ in range(130)])
    return TokenStore.open(folder)


@pytest.fixture
def encoded(monkeypatch, store):
    """Encodes by arithmetic, and tells which rows were asked for."""
    asked = []

    def encode(encoder, given_store, rows, batch_tokens, combine, progress):
        asked.append(rows)
        progress.add(len(rows))
        return vectors_of(given_store, rows)

    monkeypatch.setattr("xmc_tf.encoder.encode_documents", encode)
    monkeypatch.setattr(embeddings, "BLOCK", 8)
    monkeypatch.setattr(embeddings, "GROUP", 16)
    return asked


def vectors_of(store, rows):
    sums = np.array([store[row].sum() for row in rows], np.float32)
    return np.stack([sums, store.lengths[rows].astype(np.float32), np.full(len(rows), 2.0, np.float32)], axis=1)


class FakeEncoder(Encoder):
    """Has a width and nothing else."""

    def __init__(self):
        self.__dict__["dim"] = DIM


@pytest.mark.parametrize("size", [1, 3])
def test_any_number_of_workers_fill_one_file(tmp_path, store, encoded, size):
    expected = rows_of_length(1.0, vectors_of(store, np.arange(130)))
    if size == 1:
        embed_documents(FakeEncoder(), store, tmp_path, Solo())
    else:
        facts = on_ranks(size, lambda world: embed_documents(FakeEncoder(), store, tmp_path, world))
        assert facts == [{"dim": DIM, "summary": "130 × 3"}] * size
    np.testing.assert_array_equal(np.load(tmp_path / "E.npy"), expected)
    np.testing.assert_array_equal(np.sort(np.concatenate(encoded)), np.arange(130))


def test_blocks_that_are_there_are_not_made_again(tmp_path, store, encoded):
    on_ranks(3, lambda world: embed_documents(FakeEncoder(), store, tmp_path, world))
    lines = "".join((tmp_path / f"done.{rank}").read_text() for rank in range(3)).split("\n")
    known = {int(line.split()[0]): line for line in lines if line}
    # The lines of blocks 1 and 12 were cut short, by the last run and by the one before it.
    for rank, kept in ((0, f"\n{known[0]}\n1\n{known[9]}\n12 do"), (1, f"\n{known[4]}\n"), (2, "")):
        (tmp_path / f"done.{rank}").write_text(kept)
    E = np.lib.format.open_memmap(tmp_path / "E.npy", mode="r+")
    expected = E.copy()
    E[8:] = np.nan
    E[9 * 8 : 10 * 8], E[4 * 8 : 5 * 8] = expected[9 * 8 : 10 * 8], expected[4 * 8 : 5 * 8]
    E.flush()
    encoded.clear()
    on_ranks(2, lambda world: embed_documents(FakeEncoder(), store, tmp_path, world))
    np.testing.assert_array_equal(np.load(tmp_path / "E.npy"), expected)
    again = np.sort(np.concatenate(encoded))
    kept = np.concatenate([np.arange(8 * block, 8 * block + 8) for block in (0, 4, 9)])
    np.testing.assert_array_equal(again, np.setdiff1d(np.arange(130), kept))


def test_records_without_their_file_count_for_nothing(tmp_path, store, encoded):
    (tmp_path / "done.0").write_text("\n0 done\n1 done\n")
    embed_documents(FakeEncoder(), store, tmp_path, Solo())
    np.testing.assert_array_equal(np.load(tmp_path / "E.npy"), rows_of_length(1.0, vectors_of(store, np.arange(130))))


@given(st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=2), min_size=1))
def test_rows_of_length_one(rows):
    given_rows = np.array(rows, np.float32)
    scaled = rows_of_length(1.0, given_rows)
    lengths = np.linalg.norm(given_rows, axis=1)
    for row, before, length in zip(scaled, given_rows, lengths, strict=True):
        if length == 0:
            assert not row.any()
        else:
            np.testing.assert_allclose(row * length, before, rtol=1e-4, atol=1e-6 * length)


def test_a_copy_of_length_one(tmp_path, monkeypatch):
    monkeypatch.setattr(embeddings, "GROUP", 4)
    vectors = np.random.default_rng(0).normal(size=(10, DIM)).astype(np.float32)
    vectors[3] = 0
    copy_of_length_one(rows_of_length(0.5, vectors), tmp_path / "new" / "copy.npy")
    np.testing.assert_allclose(np.load(tmp_path / "new" / "copy.npy"), rows_of_length(1.0, vectors), rtol=1e-6)
    copy_of_length_one(vectors[:0], tmp_path / "none.npy")
    assert np.load(tmp_path / "none.npy").shape == (0, DIM)


@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 9),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    seed=st.integers(0, 99),
)
def test_ranks_fill_their_rows_in_any_order(tmp_path_factory, rows, columns, cuts, seed):
    path = tmp_path_factory.getbasetemp() / "E.npy"
    random = np.random.default_rng(seed)
    whole = random.normal(size=(rows, columns)).astype(np.float32)
    bounds = sorted({0, rows, *(min(cut, rows) for cut in cuts)})
    ranges = list(pairwise(bounds))
    RowFile.create(path, (rows, columns))
    random.shuffle(ranges)
    with RowFile(path) as one, RowFile(path) as other:
        for number, (begin, end) in enumerate(ranges):
            (one, other)[number % 2].write(begin, whole[begin:end])
        one.sync()
    np.testing.assert_array_equal(np.load(path), whole)


def test_rows_of_another_type_are_converted_and_the_rest_stays_zero(tmp_path):
    RowFile.create(tmp_path / "E.npy", (3, 2))
    with RowFile(tmp_path / "E.npy") as file:
        file.write(1, np.array([[1, 2, 9]])[:, :2])
    assert np.load(tmp_path / "E.npy").tolist() == [[0, 0], [1, 2], [0, 0]]


def test_a_file_that_is_no_matrix_is_refused(tmp_path):
    path = tmp_path / "E.npy"
    path.write_bytes(b"something else")
    refused(r"embeddings: .*E\.npy", RowFile, path)

"""The file of vectors: filled by several workers, block by block, and taken up where it was left."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collective.threads import on_ranks
from xmc_tf.common.progress import Progress
from xmc_tf.data import TokenStore
from xmc_tf.encoder import Encoder
from xmc_tf.pipeline import embeddings, row_blocks
from xmc_tf.pipeline.embeddings import copy_of_length_one, embed_documents, rows_of_length
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


def test_one_bar_over_all_documents_shown_by_the_first_rank(tmp_path, store, encoded, monkeypatch):
    """Though the documents are encoded some at a time, and a part of them was there."""
    made = []

    class Recorded(Progress):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setattr(row_blocks, "Progress", Recorded)
    on_ranks(2, lambda world: embed_documents(FakeEncoder(), store, tmp_path, world))
    assert len(encoded) > 4
    assert len(made) == 2
    assert [one.done for one in made] == [one.total for one in made]
    assert sum(one.total for one in made) == 130
    assert sorted(one._next - one._start for one in made) == [2.0, float("inf")]
    lines = (tmp_path / "done.0").read_text().split("\n")
    (tmp_path / "done.0").write_text("\n".join(["", *(line for line in lines if line.startswith("0 ")), ""]))
    (tmp_path / "done.1").write_text("")
    made.clear()
    embed_documents(FakeEncoder(), store, tmp_path, Solo())
    assert [(one.done, one.total) for one in made] == [(122, 122)]


def test_a_copy_of_length_one(tmp_path, monkeypatch):
    monkeypatch.setattr(embeddings, "GROUP", 4)
    vectors = np.random.default_rng(0).normal(size=(10, DIM)).astype(np.float32)
    vectors[3] = 0
    copy_of_length_one(rows_of_length(0.5, vectors), tmp_path / "new" / "copy.npy")
    np.testing.assert_allclose(np.load(tmp_path / "new" / "copy.npy"), rows_of_length(1.0, vectors), rtol=1e-6)
    copy_of_length_one(vectors[:0], tmp_path / "none.npy")
    assert np.load(tmp_path / "none.npy").shape == (0, DIM)

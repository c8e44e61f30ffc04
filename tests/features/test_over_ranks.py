"""Texts to features by many ranks: the files of one process; ranks are threads of this process here."""

import pytest

from tests.collective.threads import on_ranks, results_of
from tests.features.texts import HARD, random_corpus
from tests.files import contents
from xmc_tf.common.errors import InputError
from xmc_tf.data import TextFile
from xmc_tf.features import Tfidf, over_ranks
from xmc_tf.features.over_ranks import vectorize_over_ranks
from xmc_tf.params import TfidfParams
from xmc_tf.store.arrays import save_sparse


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Return texts of very different lengths, some of them hard to read."""
    path = tmp_path_factory.mktemp("texts") / "X.txt"
    texts = [text.encode() for text in random_corpus(900, seed=8, words=400, length=8)]
    path.write_bytes(b"".join(text.replace(b"\n", b" ") + b"\n" for text in [*texts, *HARD, *texts[:50]]))
    return path


def over(ranks, texts, params, folder):
    folder.mkdir(exist_ok=True)
    return on_ranks(
        ranks, lambda one: vectorize_over_ranks(one, texts, params, folder / "tfidf", folder / "X", threads=1)
    )


@pytest.mark.parametrize(
    ("params", "sizes"),
    [
        (TfidfParams(), (2, 5)),
        (TfidfParams(ngram_max=3, min_df=1, max_features=301, sublinear_tf=False), (2,)),
        (TfidfParams(min_df=3, max_features=17, ngram_max=1, lowercase=False), (5,)),
    ],
)
def test_the_files_of_one_process(params, sizes, path, tmp_path, monkeypatch):
    monkeypatch.setattr(over_ranks, "DOCUMENTS_PER_PIECE", 170)
    texts, alone = TextFile(path), tmp_path / "alone"
    tfidf = Tfidf.fit(texts, params, threads=1)
    alone.mkdir()
    tfidf.save(alone / "tfidf")
    save_sparse(alone / "X", tfidf.transform(texts, threads=1))
    most, add_up = [], over_ranks.add_up
    monkeypatch.setattr(over_ranks, "add_up", lambda parts: (most.append(sums := add_up(parts)), sums)[1])
    for ranks in sizes:
        most.clear()
        results = results_of(over(ranks, texts, params, tmp_path / str(ranks)))
        assert contents(tmp_path / str(ranks)) == contents(alone)
        assert all((results[0] != X).nnz == 0 for X in results)
        everyones = [len(sums.keys) for sums in most]
        assert max(everyones) < 1.3 * sum(everyones) / ranks  # nobody holds much more than a share


def test_texts_in_memory_and_fewer_of_them_than_ranks(tmp_path):
    texts, params = ["one two", "two three", ""], TfidfParams(min_df=1)
    expected = Tfidf.fit(texts, params).transform(texts)
    for X in results_of(over(4, texts, params, tmp_path / "X")):
        assert (expected != X).nnz == 0


def test_an_interrupted_run_is_taken_up_by_other_ranks(path, tmp_path, monkeypatch):
    texts, params, folder = TextFile(path), TfidfParams(), tmp_path / "X"
    monkeypatch.setattr(over_ranks, "DOCUMENTS_PER_PIECE", 100)
    with monkeypatch.context() as broken:
        broken.setattr(over_ranks, "stack_rows", lambda *_: (_ for _ in ()).throw(OSError("the disk is full")))
        assert all(isinstance(error, OSError) for error in over(2, texts, params, folder))
    assert not (folder / "X").exists()
    assert len(list(folder.glob("X-*"))) > 5
    fits = []
    monkeypatch.setattr(over_ranks, "_fit", lambda *a: fits.append(a))
    found = results_of(over(3, texts, params, folder))[0]
    assert not fits
    assert sorted(path.name for path in folder.iterdir()) == ["X", "tfidf"]
    assert (found != Tfidf.load(folder / "tfidf").transform(texts)).nnz == 0


def test_no_feature_raises_the_same_error_on_all_ranks(path, tmp_path):
    texts, params = TextFile(path), TfidfParams(min_df=5000)
    with pytest.raises(InputError) as alone:
        Tfidf.fit(texts, params)
    for error in over(3, texts, params, tmp_path / "X"):
        assert isinstance(error, InputError)
        assert str(alone.value) in str(error)

"""Training on several ranks: the same model as on one, and as if nothing had happened when ranks are killed."""

import os
import random
import signal
import time

import numpy as np
import pytest

from tests.distributed.launch import horovodrun, python, wait_for
from tests.pipeline.corpus import texts_and_labels, train_flags, write_corpus
from xmc_tf.data import load_matrix
from xmc_tf.pipeline import XTransformer

pytestmark = pytest.mark.distributed

# Where the command is killed, run after run in one work folder: when this is there, the first rank or all.
MOMENTS = [
    ("features.part", "one"),
    ("fine-tuning.part/levels/level_1/training/last/manifest.json", "all"),
    ("fine-tuning.part/levels/level_2/training/last/manifest.json", "one"),
    ("embeddings.part/E.npy", "all"),
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Texts, labels and a tiny encoder."""
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def flags(corpus, model, batch):
    more = ["--hidden-dropout-prob", 0, "-ns", "tfn+man", "--max-steps", 5, "--batch-size", batch, "--keep-work"]
    return train_flags(corpus, model, *more)


@pytest.fixture(scope="module")
def unbroken(corpus):
    """The model of two ranks that nobody disturbs."""
    run = horovodrun("module:xmc_tf.train", *flags(corpus, corpus / "unbroken", 8), engine="gloo", timeout=300)
    assert "fine-tuning: done" in run.ranks[0].output
    assert "done in" not in run.ranks[1].output  # rank 0 speaks for all
    return XTransformer.load(corpus / "unbroken")


def assert_same(model, other, texts, atol):
    ours, theirs = model.predict(texts), other.predict(texts)
    np.testing.assert_array_equal(ours.indptr, theirs.indptr)
    np.testing.assert_allclose(ours.data, theirs.data, atol=atol)
    # Two labels with the same score may stand either way round.
    same = (ours.indices == theirs.indices).mean()
    assert same == 1 or (same > 0.97 and abs(ours - theirs).max() < 10 * atol)


def test_two_ranks_train_what_one_trains(corpus, unbroken):
    python("module:xmc_tf.train", *flags(corpus, corpus / "alone", 16), timeout=300)
    alone, (texts, _) = XTransformer.load(corpus / "alone"), texts_and_labels(corpus, "tst")
    np.testing.assert_allclose(alone.encode(texts), unbroken.encode(texts), atol=1e-3)
    assert_same(alone, unbroken, texts, 1e-3)
    heads = [model.predict(texts, ensemble_method="transformer-only") for model in (alone, unbroken)]
    np.testing.assert_allclose(heads[0].data, heads[1].data, atol=1e-3)


def test_killed_at_any_moment_it_goes_on(corpus, unbroken):
    model, chance = corpus / "broken", random.Random(os.environ.get("XMC_TF_TEST_SEED", "0"))
    work = corpus / "broken.work"
    for place, whom in MOMENTS:

        def kill(folder, place=place, whom=whom):
            part = work / place
            whole = work / place.split(".part")[0] / "stage.json"
            wait_for(lambda: part.exists() or whole.exists(), 200, place)
            time.sleep(chance.random() * 0.3)
            victims = sorted(folder.glob("*.pid"))
            for victim in victims if whom == "all" else [chance.choice(victims)]:
                os.kill(int(victim.read_text()), signal.SIGKILL)

        run = horovodrun(
            "module:xmc_tf.train", *flags(corpus, model, 8), engine="gloo", timeout=300, check=False, during=kill
        )
        assert run.returncode != 0, run.describe()
        assert not model.exists()
    run = horovodrun("module:xmc_tf.train", *flags(corpus, model, 8), engine="gloo", timeout=300)
    assert "features: kept from before" in run.ranks[0].output
    assert "fine-tuning: kept from before" in run.ranks[0].output
    assert_same(XTransformer.load(model), unbroken, texts_and_labels(corpus, "tst")[0], 1e-4)


def test_two_ranks_predict_and_encode_what_one_does(corpus, unbroken, tmp_path):
    texts, _ = texts_and_labels(corpus, "tst")
    paths = [str(path) for path in (corpus / "unbroken", corpus / "X.tst.txt", corpus / "Y.tst.npz", tmp_path)]
    run = horovodrun("predict_and_encode.py", *paths, engine="mpi", timeout=200)
    assert "precision" in run.ranks[0].output
    assert "precision" not in run.ranks[1].output
    predicted, expected = load_matrix(tmp_path / "P.npz"), unbroken.predict(texts)
    np.testing.assert_allclose(predicted.toarray(), expected.toarray(), atol=1e-5)
    shares = [np.load(tmp_path / f"X.emb.{rank}.npy") for rank in (0, 1)]
    assert [len(share) for share in shares] == [30, 30]
    np.testing.assert_allclose(np.concatenate(shares), unbroken.encode(texts), atol=1e-5)

"""Tests that training on several ranks gives the model of one rank; see ``test_train_killed.py`` for kills."""

from functools import cache, partial

import numpy as np
import pytest

from tests.distributed.launch import horovodrun, mpiexec, python
from tests.files import contents
from tests.jobs.conftest import documents, write_table
from tests.pipeline.corpus import texts_and_labels, train_flags, write_corpus
from xmc_tf import evaluate
from xmc_tf.data import load_matrix
from xmc_tf.encoder import Encoder
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.tables.runs import runs_of
from xmc_tf.tables.store import TableStore

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Write texts, labels and a tiny encoder."""
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def flags(corpus, model, batch, precision="off"):
    # In float32: in bfloat16, which some processors choose, sums of two ranks differ from those of one by more.
    more = ["--hidden-dropout-prob", 0, "-ns", "tfn+man", "--max-steps", 5, "--batch-size", batch, "--keep-work"]
    more += ["--mixed-precision", precision]
    return train_flags(corpus, model, *more)


@pytest.fixture(scope="module")
def uninterrupted(corpus):
    """Return the model of an uninterrupted training on two ranks."""
    run = mpiexec("module:xmc_tf.train", *flags(corpus, corpus / "uninterrupted", 8), imported=True, timeout=300)
    assert "fine-tuning: done" in run.ranks[0].output
    assert "done in" not in run.ranks[1].output  # only rank 0 logs
    return XTransformer.load(corpus / "uninterrupted")


def assert_same(model, other, texts, atol):
    ours, theirs = model.predict(texts), other.predict(texts)
    np.testing.assert_array_equal(ours.indptr, theirs.indptr)
    np.testing.assert_allclose(ours.data, theirs.data, atol=atol)
    # Labels with equal scores may be in any order.
    same = (ours.indices == theirs.indices).mean()
    assert same == 1 or (same > 0.97 and abs(ours - theirs).max() < 10 * atol)


def test_two_ranks_train_what_one_trains(corpus, uninterrupted):
    python("module:xmc_tf.train", *flags(corpus, corpus / "alone", 16), imported=True, timeout=300)
    alone, (texts, _) = XTransformer.load(corpus / "alone"), texts_and_labels(corpus, "tst")
    np.testing.assert_allclose(alone.encode(texts), uninterrupted.encode(texts), atol=1e-3)
    assert_same(alone, uninterrupted, texts, 1e-3)
    heads = [model.predict(texts, ensemble_method="transformer-only") for model in (alone, uninterrupted)]
    np.testing.assert_allclose(heads[0].data, heads[1].data, atol=1e-3)


@pytest.mark.full
def test_two_ranks_predict_and_encode_what_one_does(corpus, uninterrupted, tmp_path):
    texts, _ = texts_and_labels(corpus, "tst")
    paths = [str(path) for path in (corpus / "uninterrupted", corpus / "X.tst.txt", corpus / "Y.tst.npz", tmp_path)]
    run = horovodrun("predict_and_encode.py", *paths, engine="mpi", timeout=200)
    assert "precision" in run.ranks[0].output
    assert "precision" not in run.ranks[1].output
    predicted, expected = load_matrix(tmp_path / "P.npz"), uninterrupted.predict(texts)
    np.testing.assert_allclose(predicted.toarray(), expected.toarray(), atol=1e-5)
    shares = [np.load(tmp_path / f"X.emb.{rank}.npy") for rank in (0, 1)]
    assert [len(share) for share in shares] == [30, 30]
    np.testing.assert_allclose(np.concatenate(shares), uninterrupted.encode(texts), atol=1e-5)


@pytest.mark.full
def test_two_ranks_train_in_bfloat16_what_one_trains(corpus, uninterrupted):
    models = {}
    for name, batch, start in (("bf16-alone", 16, python), ("bf16-two", 8, mpiexec)):
        run = start("module:xmc_tf.train", *flags(corpus, corpus / name, batch, "bf16"), imported=True, timeout=300)
        assert "fine-tuning: done" in run.ranks[0].output
        models[name] = XTransformer.load(corpus / name)
    texts, _ = texts_and_labels(corpus, "tst")
    alone, two = (model.encode(texts) for model in models.values())
    np.testing.assert_allclose(two, alone, atol=0.03)
    assert np.abs(two - uninterrupted.encode(texts)).max() > 1e-5  # it is another precision


@pytest.mark.full
def test_two_ranks_train_adapters_as_one_does(corpus):
    more = ["--lora-rank", "3", "--learning-rate", "0.003"]
    for name, batch, start in (("adapters-alone", 16, python), ("adapters-two", 8, mpiexec)):
        start("module:xmc_tf.train", *flags(corpus, corpus / name, batch), *more, imported=True, timeout=300)
    alone, two = (XTransformer.load(corpus / name) for name in ("adapters-alone", "adapters-two"))
    texts, _ = texts_and_labels(corpus, "tst")
    assert_same(alone, two, texts, 1e-3)
    before, after = Encoder.load(corpus / "encoder").weights, two.tensorflow_encoder.weights
    changes = {name: np.atleast_2d(after[name].numpy() - one.numpy()) for name, one in before.items()}
    changed = {name: np.linalg.matrix_rank(one, 1e-4) for name, one in changes.items() if np.abs(one).max() > 1e-6}
    assert set(changed.values()) == {3}, changed


MPI = partial(mpiexec, imported=True)


@pytest.fixture(scope="module")
def table(corpus):
    """Write a table with two labels per document."""
    return write_table(corpus / "data.csv", documents(200, 2))


@pytest.mark.parametrize(
    "start", [pytest.param(MPI, id="mpi", marks=pytest.mark.full), pytest.param(horovodrun, id="gloo")]
)
def test_ranks_fine_tune_an_encoder_on_a_table(start, corpus, table, tmp_path):
    """Rank 0 alone once removed the work folder, which all ranks must do: the summary was lost, or MPI waited."""
    model, report = tmp_path / "model", tmp_path / "report"
    flags = ["-m", model, "--data-set", tmp_path / "data.sqlite", "--report", report, "--truncate-length", 16]
    flags += ["--model-shortcut", corpus / "encoder", "--max-steps", 2]
    run = start("module:xmc_tf.train", *map(str, [table, *flags]), timeout=300)
    assert "measured on 20 test documents" in run.ranks[0].output
    assert "test documents" not in run.ranks[1].output
    store = TableStore.open(tmp_path / "data.sqlite")
    (recorded,) = runs_of(store)
    found = evaluate(store.labels("test"), XTransformer.load(model).predict(store.texts("test")), (1,))
    assert recorded.metrics["P@1"] == pytest.approx(found.at("P", 1))
    assert (report / "report.json").is_file()
    assert not (tmp_path / "model.work").exists()


@pytest.fixture(scope="module")
def of_one_process(table, tmp_path_factory):
    """Return what one process trains on a table of texts, or on one of features, and that table."""

    @cache
    def trained(kind):
        folder, rows = tmp_path_factory.mktemp(kind), table
        if kind == "features":
            rows = folder / "data.txt"
            rows.write_text("".join(["120 11 4\n", *(f"{n % 4} {n % 4}:1 {4 + n % 7}:0.5\n" for n in range(120))]))
        return trained_on(rows, folder, partial(python, imported=True))[1:], rows

    return trained


def trained_on(table, folder, launcher):
    """Train a linear model, and return the run, its record, and the model's files."""
    flags = ["-m", folder / "model", "--data-set", folder / "data.sqlite"]
    run = launcher("module:xmc_tf.train", *map(str, [table, *flags]), timeout=300)
    assert "test documents, which were not used in training" in run.ranks[0].output
    (recorded,) = runs_of(TableStore.open(folder / "data.sqlite"))
    record = (recorded.metrics, recorded.parameters, recorded.chosen, len(recorded.trials))
    return run, record, contents(folder / "model")


@pytest.mark.parametrize("kind", ["texts", pytest.param("features", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "start", [pytest.param(MPI, id="mpi"), pytest.param(horovodrun, id="gloo", marks=pytest.mark.full)]
)
def test_ranks_train_on_a_table_the_linear_model_of_one_process(start, kind, of_one_process, tmp_path):
    expected, table = of_one_process(kind)
    run, *found = trained_on(table, tmp_path, start)
    assert "test documents" not in run.ranks[1].output
    assert tuple(found) == expected
    assert not (tmp_path / "model.work").exists()

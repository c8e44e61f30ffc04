"""The arrangement for search, in memory and on disk: the same answers, or an error that names a damaged file."""

import pickle
import shutil

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.files import contents, flip
from tests.linear.cases import random_chain, random_model
from tests.refusals import refused
from xmc_tf.data import Features, as_features
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.rankers import XLinear
from xmc_tf.rankers.kernels.layout import child_bytes
from xmc_tf.rankers.layout import stored
from xmc_tf.rankers.layout.stored import build_chunks
from xmc_tf.rankers.level import UnreadWeights

SPARSE, DENSE = 50, 3


def generated(seed=0):
    return random_model(random_chain(60, [4]), SPARSE, DENSE, density=0.2, seed=seed)


@pytest.fixture(scope="module")
def queries():
    rng = np.random.default_rng(0)
    X = csr_matrix(np.where(rng.random((20, SPARSE)) < 0.3, 1, 0).astype(np.float32))
    return Features(X, rng.normal(size=(20, DENSE)).astype(np.float32))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder of rankers with a layout, although they are small."""
    folder = tmp_path_factory.mktemp("stored") / "m"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "FEWEST_WEIGHTS", 1)
        generated().save(folder)
    return folder


@pytest.fixture
def copy(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "m")


def answers(model, X):
    return [model.predict(X, beam_size=3, only_topk=5).toarray().tolist(), selected(model, X).toarray().tolist()]


def selected(model, X):
    labels = np.arange(X.nr_rows) % model.nr_labels
    wanted = csr_matrix((np.ones(len(labels)), (np.arange(len(labels)), labels)), (len(labels), model.nr_labels))
    return model.predict_selected(X, wanted)


def test_the_answers_are_the_same_and_no_weights_are_read(saved, queries, caplog):
    model = XLinear.load(saved, nr_dense=DENSE)
    assert answers(model, queries) == answers(generated(), queries)
    assert all(isinstance(level.stored, UnreadWeights) and "weights" not in vars(level) for level in model.levels)
    assert model.nr_weights == generated().nr_weights
    assert repr(model.levels[0]) == repr(generated().levels[0])
    assert not caplog.records


def test_small_models_have_no_layout(tmp_path):
    generated().save(tmp_path / "m")
    assert not (tmp_path / "m" / "search").exists()


def test_damage_is_named_when_the_model_is_loaded(copy, queries):
    rng = np.random.default_rng(0)
    for path in sorted((copy / "search").iterdir()):
        if path.name == "search.json":
            continue
        before = path.read_bytes()
        for position in [0, 20, len(before) - 1, *rng.integers(0, len(before), 12)]:
            flip(path, position, int(rng.integers(1, 256)))
            refused(rf"{path.name} is damaged: its content has changed", XLinear.load, copy, nr_dense=DENSE)
            path.write_bytes(before)
        for length in (0, 100, len(before) - 64):
            path.write_bytes(before[:length])
            refused(rf"{path.name} is damaged: its size has changed", XLinear.load, copy, nr_dense=DENSE)
        path.write_bytes(before)
    assert answers(XLinear.load(copy, nr_dense=DENSE), queries) == answers(generated(), queries)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "xmc_tf.search", "version": 2}'])
def test_a_damaged_header_is_named(copy, content):
    (copy / "search" / "search.json").write_text(content)
    refused("search", XLinear.load, copy, nr_dense=DENSE)


def test_a_layout_that_an_overwritten_model_left_is_not_read(copy, tmp_path, monkeypatch):
    """Copying a small model over a large one leaves the layout of the large one."""
    texts, old = ["red apple", "blue sea", "red sea"], tmp_path / "old"
    with monkeypatch.context() as patch:
        patch.setattr(stored, "FEWEST_WEIGHTS", 1)
        XRLinear.train(texts, [["fruit"], ["water"], ["water"]]).save(old)
    model = XRLinear.train(texts, [["water"], ["fruit"], ["fruit"]])
    model.save(tmp_path / "new")
    shutil.copytree(tmp_path / "new", old, dirs_exist_ok=True)
    assert XRLinear.load(old).best(texts) == model.best(texts)
    generated(1).save(tmp_path / "rankers")  # without records
    shutil.copytree(tmp_path / "rankers", copy, dirs_exist_ok=True)
    refused("contains files of two models(.|\n)*delete search/", XLinear.load, copy)


def test_queries_of_another_division_do_not_use_it(saved, queries):
    """The layout is for three dense features; here all are sparse."""
    together = Features(csr_matrix(np.hstack([queries.sparse.toarray(), queries.dense])), None)
    found, right = (answers(model, together) for model in (XLinear.load(saved), generated()))
    assert found == right


def test_restricted_predictions_read_no_weights(saved, queries):
    model, right = XLinear.load(saved, nr_dense=DENSE), generated()
    every = model.levels
    for labels in ([3, 14, 41], None):
        for one in (model, right):
            one.set_output_constraint(labels)
        found, expected = (one.predict(queries, only_topk=3).toarray().tolist() for one in (model, right))
        assert found == expected
    assert not any("weights" in vars(level) for level in every)


def test_a_pickled_model_needs_no_folder(copy, queries):
    content = pickle.dumps(XLinear.load(copy, nr_dense=DENSE))
    shutil.rmtree(copy)
    assert answers(pickle.loads(content), queries) == answers(generated(), queries)


def test_saved_again_it_has_the_same_bytes(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "FEWEST_WEIGHTS", 1)
    XLinear.load(saved, nr_dense=DENSE).save(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(saved)


@pytest.mark.parametrize(
    ("labels", "size", "density"), [(300, 1, 0.05), (300, 1, 1.0), (600, 2, 0.05), (600, 2, 1.0), (140_000, 4, 0.05)]
)
def test_clusters_of_many_labels(labels, size, density):
    """Rows with weights of most siblings are stored whole, others with the places of their weights."""
    model = random_model(random_chain(labels, [2]), 3, density=density, posts="noop")
    _, chunks = build_chunks(model.levels, 3, 0, 2)
    for ours, again in zip(chunks, build_chunks(model.levels, 3, 0, 1)[1], strict=True):
        np.testing.assert_array_equal(ours, again)
    assert child_bytes(chunks.child_start[2] - chunks.child_start[1]) == size
    expected = model.levels[1].weights.toarray()
    found = model.predict(as_features(csr_matrix(np.ones((1, 3), np.float32))), beam_size=2, only_topk=labels)
    np.testing.assert_allclose(found.toarray()[0], expected.sum(axis=0), atol=1e-5)

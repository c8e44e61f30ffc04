"""The arrangement for search, in memory and on disk: the same answers, whatever happens to its files."""

import pickle
import shutil

import numba
import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.files import flip
from tests.linear.cases import random_chain, random_model
from tests.refusals import refused
from xmc_tf.data import Features, as_features
from xmc_tf.rankers import XLinear
from xmc_tf.rankers.distributed.training import place_rankers
from xmc_tf.rankers.kernels import layout
from xmc_tf.rankers.kernels.layout import LINE, child_bytes
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


def test_damage_is_noticed_or_harmless(copy, queries, caplog):
    right = answers(generated(), queries)
    rng = np.random.default_rng(0)
    for path in sorted((copy / "search").iterdir()):
        before, noticed = path.read_bytes(), 0
        for position in [0, 20, len(before) - 1, *rng.integers(0, len(before), 12)]:
            flip(path, position, int(rng.integers(1, 256)))
            caplog.clear()
            assert answers(XLinear.load(copy, nr_dense=DENSE), queries) == right
            noticed += "the weights are arranged in memory instead" in caplog.text
            path.write_bytes(before)
        assert noticed > 5, path


def cut_to(length):
    return lambda copy: (copy / "search/words.npy").write_bytes((copy / "search/words.npy").read_bytes()[:length])


def replace_weights(copy):
    generated(seed=1).save(copy.parent / "other")
    for t in range(2):
        shutil.copy(copy.parent / f"other/ranker/{t}.model/W.npz", copy / f"ranker/{t}.model/W.npz")


@pytest.mark.parametrize(
    ("change", "said", "seed"),
    [
        *((cut_to(length), "words.npy", 0) for length in (0, 100, -64)),
        (replace_weights, "does not match the weights beside it", 1),
        (lambda copy: shutil.rmtree(copy / "search"), None, 0),  # it is not missed
    ],
)
def test_a_layout_that_cannot_be_used_changes_no_answer(copy, queries, caplog, change, said, seed):
    change(copy)
    assert answers(XLinear.load(copy, nr_dense=DENSE), queries) == answers(generated(seed=seed), queries)
    assert said in caplog.text if said else not caplog.records


def test_a_damaged_layout_without_other_weights_is_not_to_be_deleted(copy, caplog, monkeypatch):
    for t in range(2):
        (copy / "ranker" / f"{t}.model" / "W.npz").unlink()
    (copy / "search" / "words.npy").write_bytes(b"")
    error = refused("no other copy of its weights", XLinear.load, copy, nr_dense=DENSE)
    assert "delete" not in f"{error}{caplog.text}"
    monkeypatch.setattr(stored, "VERSION", 99)
    refused(r"has version \d+, not 99(.|\n)*the version of xmc_tf that wrote", XLinear.load, copy, nr_dense=DENSE)


def test_a_damaged_chunk_is_reported_once(copy, queries, caplog):
    path = copy / "search" / "words.npy"
    flip(path, path.stat().st_size // 2)
    model = XLinear.load(copy, nr_dense=DENSE)
    assert not caplog.records
    for _ in range(2):
        assert answers(model, queries) == answers(generated(), queries)
    assert [record.message.split(";")[0] for record in caplog.records] == [
        f"{copy / 'search'} is damaged: its content has changed since it was saved"
    ]


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


def test_saved_again_and_placed_over_ranks_it_has_the_same_bytes(saved, tmp_path, monkeypatch):
    class Work:
        def weights(self, t):
            return saved / "ranker" / f"{t}.model" / "W.npz"

    monkeypatch.setattr(stored, "FEWEST_WEIGHTS", 1)
    model = XLinear.load(saved, nr_dense=DENSE)
    model.save(tmp_path / "again")
    place_rankers(tmp_path / "placed", Work(), model)
    for folder in (tmp_path / "again", tmp_path / "placed"):
        names = sorted(path.relative_to(saved) for path in saved.rglob("*") if path.is_file())
        assert names == sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        for name in names:
            assert (folder / name).read_bytes() == (saved / name).read_bytes(), name


checksum = numba.njit(layout.checksum)


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


def test_a_checksum_notices_each_changed_bit():
    numbers = np.random.default_rng(0).integers(0, 2**63, 4 * LINE).astype(np.uint64)
    right = checksum(numbers, 0, len(numbers))
    for place in range(len(numbers)):
        for bit in (0, 31, 63):
            numbers[place] ^= np.uint64(1 << bit)
            assert checksum(numbers, 0, len(numbers)) != right
            numbers[place] ^= np.uint64(1 << bit)
    assert checksum(numbers, 0, len(numbers)) == right

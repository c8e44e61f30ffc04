"""Models and texts for the tests of serving."""

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix

from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import HierarchicalKMeansParams, LinearLevelPredParams, XRLinearParams
from xmc_tf.rankers.level import Level
from xmc_tf.rankers.xlinear import XLinear

NAMES = [f"label {number}" for number in range(58)] + ["ääkköset", "emoji 🎉"]
WORDS = ["sauna", "träsk", "ÅLAND", "naïve", "музыка", "音楽", *(f"word{number}" for number in range(150))]
HARD = [
    b"",
    b"   ",
    b"nothing that was ever seen",
    "word3 word5 😀 naïve 🎉 музыка".encode(),
    b"\xff\xfe word7 \x80\x81 word9 \xc3",
    b"word1\x00word2 word3",
    "音楽 ÅLAND åland TRÄSK".encode(),
    b"word11 " * 150_000,  # a megabyte
    " ".join(WORDS * 3).encode(),
    b"a" * 1_000_000,
]


def documents(count=400, seed=1):
    """Return texts whose words indicate their labels."""
    draw = np.random.default_rng(seed)
    texts, rows, columns = [], [], []
    for row in range(count):
        labels = draw.choice(len(NAMES), draw.integers(1, 4), replace=False)
        words = [WORDS[(label * 5 + offset) % len(WORDS)] for label in labels for offset in draw.integers(0, 5, 4)]
        words += list(draw.choice(WORDS, 3))
        draw.shuffle(words)
        texts.append(" ".join(words))
        rows += [row] * len(labels)
        columns += labels.tolist()
    Y = csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=(count, len(NAMES)))
    return texts, Y


def text_model(names=NAMES):
    """Return a model of three levels, from text to names."""
    texts, Y = documents()
    params = XRLinearParams(tree=HierarchicalKMeansParams(nr_splits=4, max_leaf_size=6))
    return XRLinear.train(texts, Y, names=names, params=params, label_names=False, probabilities=False, threads=1)


def random_tree(sizes, draw, *, shuffled=True):
    """Return cluster matrices of levels of the given sizes, with random children."""
    matrices, above = [], 1
    for size in sizes:
        parent = np.concatenate([np.arange(min(above, size)), draw.integers(0, above, max(size - above, 0))])
        if shuffled:
            draw.shuffle(parent)
        else:
            parent.sort()
        matrices.append(csc_matrix((np.ones(size, np.float32), (np.arange(size), parent)), shape=(size, above)))
        above = size
    return matrices


def random_model(
    draw, *, nr_sparse=40, nr_dense=0, sizes=(3, 12, 70), post="l3-hinge", density=0.3, bias=1.0, beam=4, k=6, **tree
):
    """Return rankers with random weights, some of them equal."""
    levels = []
    for size, clusters in zip(sizes, random_tree(sizes, draw, **tree), strict=True):
        weights = draw.standard_normal((nr_sparse + nr_dense + (bias > 0), size)).round(1)
        weights *= draw.random(weights.shape) < density
        weights[:, -1] = weights[:, 0]  # nodes that always tie
        levels.append(Level(csc_matrix(weights.astype(np.float32)), clusters, bias, LinearLevelPredParams(beam, post)))
    last = levels[-1]
    levels[-1] = Level(last.weights, last.clusters, last.bias, LinearLevelPredParams(k, post))
    return XLinear(levels, nr_sparse, nr_dense)


def random_sparse(draw, rows, columns, density=0.2):
    """Return features, some rows of which are empty."""
    X = draw.random((rows, columns)) * (draw.random((rows, columns)) < density)
    X[:2] = 0
    return csr_matrix(X.astype(np.float32))


def assert_export_answers(model, folder, texts, **options):
    """Export a model; check that the export gives its predictions with the same options, and return these."""
    from xmc_tf.serving.local import LocalModel  # which needs TensorFlow

    model.export(folder, **options)
    expected, found = model.predict(texts, **options), LocalModel(folder).predict(texts)
    assert expected.nnz > 0
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-5, atol=2e-5)
    rows = np.repeat(np.arange(len(texts)), np.diff(found.indptr))
    scores = np.asarray(expected[rows, found.indices]).ravel()
    assert (np.diff(scores)[rows[1:] == rows[:-1]] < 1e-7).all()  # labels of one score may change places
    return expected


def assert_same(labels, scores, expected, atol=1e-4):
    """Check that answers equal those of the rankers' own search, padded with label -1."""
    for row in range(expected.shape[0]):
        begin, end = expected.indptr[row : row + 2]
        count = end - begin
        np.testing.assert_array_equal(labels[row, :count], expected.indices[begin:end], f"row {row}")
        np.testing.assert_allclose(scores[row, :count], expected.data[begin:end], rtol=0, atol=atol)
        assert (labels[row, count:] == -1).all()
        assert (scores[row, count:] == 0).all()

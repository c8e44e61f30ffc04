"""PECOS's XLinear folder: writing, reading, and errors about damaged files."""

import json
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse import csc_matrix

from tests.linear.cases import random_chain, random_model, sparse_rows
from tests.refusals import refused
from xmc_tf.data import as_features
from xmc_tf.rankers import XLinear


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture
def saved(tmp_path):
    """A folder of a model of two levels, 12 features, 9 labels."""
    random_model(random_chain(9, [3]), 12, posts=["sigmoid", "l2-hinge"], bias=0.5).save(tmp_path / "model")
    return tmp_path / "model"


def test_content_of_the_parameter_files(saved):
    assert sorted(str(path.relative_to(saved)) for path in saved.rglob("*.*") if path.is_file()) == [
        "param.json",
        *(f"ranker/{t}.model/{name}" for t in (0, 1) for name in ("C.npz", "W.npz", "param.json")),
        "ranker/param.json",
    ]
    assert read(saved / "param.json") == {
        "__meta__": {"class_fullname": "pecos.xmc.xlinear.model###XLinearModel"},
    }
    assert read(saved / "ranker" / "param.json") == {
        "__meta__": {"class_fullname": "pecos.xmc.base###HierarchicalMLModel"},
        "model": "HierarchicalMLModel",
        "depth": 2,
        "nr_features": 12,
        "nr_codes": 3,
        "nr_labels": 9,
    }
    assert read(saved / "ranker" / "0.model" / "param.json") == {
        "__meta__": {"class_fullname": "pecos.xmc.base###MLModel"},
        "model": "MLModel",
        "nr_labels": 3,
        "nr_features": 12,
        "nr_codes": 1,
        "bias": 0.5,
        "pred_kwargs": {
            "__meta__": {"class_fullname": "pecos.xmc.base###MLModel.PredParams"},
            "only_topk": 20,
            "post_processor": "sigmoid",
        },
    }
    assert read(saved / "ranker" / "1.model" / "param.json")["pred_kwargs"]["post_processor"] == "l2-hinge"


@pytest.mark.parametrize(("name", "shape"), [("W", (13, 9)), ("C", (9, 3))])
def test_format_of_the_matrix_files(saved, name, shape):
    path = saved / "ranker" / "1.model" / f"{name}.npz"
    with zipfile.ZipFile(path) as archive:
        assert {member.compress_type for member in archive.infolist()} == {zipfile.ZIP_STORED}
        assert sorted(archive.namelist()) == ["data.npy", "format.npy", "indices.npy", "indptr.npy", "shape.npy"]
    with np.load(path) as arrays:
        kinds = {key: arrays[key].dtype.str for key in ("data", "indices", "indptr")}
        assert kinds == {"data": "<f4", "indices": "<i4", "indptr": "<i4"}
        assert arrays["format"].item() == b"csc"
        assert tuple(arrays["shape"]) == shape
        assert not np.isfortran(arrays["data"])
    matrix = sp.load_npz(path)
    assert matrix.has_sorted_indices
    assert matrix.shape == shape


def pecos_folder(folder, levels, bias, nr_features, compress=False):
    """Write a folder of PECOS with numpy, scipy and json alone; levels are (W, C, post-processor)."""

    def write(path, **content):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=True))

    write(folder / "param.json", __meta__={"class_fullname": "pecos.xmc.xlinear.model###XLinearModel"})
    write(
        folder / "ranker" / "param.json", model="HierarchicalMLModel", depth=len(levels), nr_features=nr_features,
        nr_codes=levels[-1][1].shape[1], nr_labels=levels[-1][1].shape[0],
    )  # fmt: skip
    for t, (W, C, post) in enumerate(levels):
        here = folder / "ranker" / f"{t}.model"
        write(
            here / "param.json", model="MLModel", nr_labels=C.shape[0], nr_features=nr_features, nr_codes=C.shape[1],
            bias=bias, pred_kwargs={"only_topk": 2, "post_processor": post},
        )  # fmt: skip
        sp.save_npz(here / "W.npz", csc_matrix(W, dtype=np.float32), compressed=compress)
        sp.save_npz(here / "C.npz", csc_matrix(C, dtype=np.float32), compressed=compress)


@pytest.mark.parametrize("compress", [False, True])
def test_a_folder_written_by_hand(tmp_path, compress):
    """Two clusters, {1, 2} and {0}; three features, the bias 2."""
    W0 = [[1, 0], [0, 1], [0, 0], [0.25, 0]]
    W1 = [[1, 0, 0.5], [0, 0, 0.5], [0, 2, 0], [0.5, -0.25, 0]]
    C1 = [[0, 1], [1, 0], [1, 0]]
    levels = [(W0, np.ones((2, 1)), "sigmoid"), (W1, np.array(C1), "sigmoid")]
    pecos_folder(tmp_path / "model", levels, bias=2.0, nr_features=3, compress=compress)
    model = XLinear.load(tmp_path / "model")
    assert (model.depth, model.nr_features, model.nr_labels, model.nr_weights) == (2, 3, 3, 9)

    x = as_features(sp.csr_matrix(np.array([[1, 0, 1]], np.float32)))
    # Raw: clusters 1 + 0.5 and 0; labels 1 + 1, 2 - 0.5 and 0.5.
    s = lambda raw: 1 / (1 + np.exp(-raw))  # noqa: E731
    expected = [s(0.0) * s(2.0), s(1.5) * s(1.5), s(1.5) * s(0.5)]
    np.testing.assert_allclose(model.predict(x, only_topk=3).toarray()[0], expected, rtol=1e-6)
    assert model.predict(x).indices.tolist() == [1, 2]  # two are kept, as the file says
    model.save(tmp_path / "again")
    for t in (0, 1):
        for name in ("W.npz", "C.npz"):
            ours, theirs = (sp.load_npz(tmp_path / at / "ranker" / f"{t}.model" / name) for at in ("again", "model"))
            np.testing.assert_array_equal(ours.toarray(), theirs.toarray())


@pytest.mark.parametrize("bias", [0, -1])
def test_without_bias_there_is_no_row_for_it(tmp_path, bias):
    pecos_folder(tmp_path / "model", [(np.eye(3, 2), np.ones((2, 1)), "noop")], bias=bias, nr_features=3)
    model = XLinear.load(tmp_path / "model")
    assert model.predict(as_features(sp.csr_matrix(np.array([[0, 3, 5]], np.float32)))).toarray().tolist() == [[0, 3]]


def test_a_pruned_model_is_loaded_and_searched(tmp_path):
    """A label without a parent is never found."""
    C = np.array([[1, 0], [0, 0], [0, 1]])
    pecos_folder(tmp_path / "m", [(np.ones((3, 2)), np.ones((2, 1)), "noop"), (np.ones((3, 3)), C, "noop")], 1.0, 2)
    model = XLinear.load(tmp_path / "m")
    x = as_features(sparse_rows(1, 2))
    assert model.predict(x, beam_size=5, only_topk=5).indices.tolist() == [0, 2]


def edit(path, **changes):
    content = {**read(path), **changes}
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def put(path, matrix):
    sp.save_npz(path, csc_matrix(matrix, dtype=np.float32), compressed=False)


ONE = "ranker/1.model"
DAMAGE = {
    "no top": (lambda m: (m / "ranker/param.json").unlink(), ["ranker/param.json is missing"]),
    "no W": (lambda m: (m / ONE / "W.npz").unlink(), [f"{ONE}/W.npz is missing", "copy it again"]),
    "not UTF-8": (lambda m: (m / ONE / "param.json").write_bytes(b"\xff{}"), [f"{ONE}/param.json is not JSON"]),
    "half W": (lambda m: cut(m / ONE / "W.npz"), [f"{ONE}/W.npz", "damaged"]),
    "another W": (lambda m: put(m / ONE / "W.npz", np.ones((14, 9))), ["W.npz does not belong", "13 × 9", "14 × 9"]),
    "another C": (lambda m: put(m / ONE / "C.npz", np.ones((8, 3))), ["C.npz does not belong", "9 × 3", "8 × 3"]),
    "mixed": (
        lambda m: (put(m / ONE / "C.npz", np.eye(9, 5)), edit(m / ONE / "param.json", nr_codes=5)),
        [ONE, "3 parents", "5", "files of two models"],
    ),
    "two parents": (lambda m: put(m / ONE / "C.npz", np.eye(9, 3) + np.eye(9, 3, -1)), ["C.npz", "row", "2 parents"]),
    "NaN": (lambda m: put(m / ONE / "W.npz", np.full((13, 9), np.nan)), [f"{ONE}/W.npz", "row 0, column 0", "nan"]),
    "no depth": (lambda m: edit(m / "ranker/param.json", depth=None), ["ranker/param.json: depth is None"]),
    "too deep": (lambda m: edit(m / "ranker/param.json", depth=3), ["ranker/2.model/param.json is missing"]),
    "bias": (lambda m: edit(m / ONE / "param.json", bias="1"), [f"{ONE}/param.json: bias is '1'", "a number"]),
    "post": (
        lambda m: edit(m / ONE / "param.json", pred_kwargs={"post_processor": "softmax"}),
        [f"{ONE}/param.json: pred_kwargs: post_processor", "softmax"],
    ),
    "compiled": (lambda m: edit(m / "ranker/param.json", is_mmap=True), ["ranker/param.json", "memory-map", "W.npz"]),
}


@pytest.mark.parametrize("damage", list(DAMAGE))
def test_damaged_files_are_named(saved, damage):
    harm, words = DAMAGE[damage]
    harm(saved)
    refused(words, XLinear.load, saved)


def test_a_model_replaces_a_model_and_nothing_else(saved, tmp_path):
    model = random_model(random_chain(5, [2]), 4)
    model.save(saved)
    assert XLinear.load(saved).nr_labels == 5
    home = tmp_path / "home"
    home.mkdir()
    model.save(home)  # empty
    thesis = tmp_path / "thesis"
    thesis.mkdir()
    (thesis / "chapter.tex").write_text("years of work")
    refused("is a file", model.save, thesis / "chapter.tex")
    (thesis / "param.json").write_text("{}")
    refused(r"not part of a folder of linear rankers(.|\n)*chapter\.tex, param\.json", model.save, thesis)
    assert (thesis / "chapter.tex").read_text() == "years of work"

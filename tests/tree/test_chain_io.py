"""Cluster chains on disk: what PECOS writes is read, what is written is PECOS's, what is broken is named."""

import json
import shutil

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings

from tests.refusals import refused
from tests.tree.cases import sparse, trees
from xmc_tf.common.errors import InputError
from xmc_tf.params import HierarchicalKMeansParams
from xmc_tf.tree import LabelTree, load_chain, save_chain
from xmc_tf.tree.kmeans import build_tree

TREE = build_tree(sparse(60), HierarchicalKMeansParams(nr_splits=2, max_leaf_size=16, threads=1))


@pytest.fixture
def folder(tmp_path):
    save_chain(tmp_path / "tree", TREE)
    return tmp_path / "tree"


def test_the_files_are_those_of_pecos(folder):
    """Names, formats and types as PECOS's loaders want them: uncompressed CSC, f4 data, i4 indices."""
    assert json.loads((folder / "config.json").read_text()) == {"len": TREE.depth}
    assert sorted(entry.name for entry in folder.iterdir()) == ["C0.npz", "C1.npz", "C2.npz", "config.json"]
    for t, C in enumerate(TREE.to_chain()):
        with np.load(folder / f"C{t}.npz") as file:
            assert set(file) == {"indices", "indptr", "format", "shape", "data"}
            assert file["format"].item() == b"csc"
            assert [file[part].dtype.str for part in ("indices", "indptr", "data")] == ["<i4", "<i4", "<f4"]
        read = sp.load_npz(folder / f"C{t}.npz")
        assert read.shape == C.shape
        assert (read != C).nnz == 0


@settings(max_examples=30)
@given(trees())
def test_round_trip(tmp_path_factory, tree):
    path = tmp_path_factory.mktemp("chain") / "tree"
    save_chain(path, tree)
    assert load_chain(path) == tree


def test_a_chain_as_scipy_writes_it(tmp_path):
    """Compressed, CSR, 64-bit and of doubles: as somebody makes it by hand."""
    (tmp_path / "config.json").write_text('{"len": 2, "more": true}')
    sp.save_npz(tmp_path / "C0.npz", sp.csr_matrix(np.ones((2, 1))), compressed=True)
    sp.save_npz(tmp_path / "C1.npz", sp.coo_matrix(np.array([[0, 1], [1, 0], [0, 1]])))
    tree = load_chain(tmp_path)
    assert tree == LabelTree(splits=([0, 2], [0, 1, 3]), labels=[1, 0, 2])


def test_matrices_are_checked_before_they_are_written(tmp_path):
    save_chain(tmp_path / "tree", TREE.to_chain())
    assert load_chain(tmp_path / "tree") == TREE
    with pytest.raises(InputError, match="label 0 has 2 parents"):
        save_chain(tmp_path / "other", [sp.csc_matrix(np.ones((2, 1))), sp.csc_matrix(np.ones((3, 2)))])
    assert not (tmp_path / "other").exists()


def test_an_old_tree_is_replaced_whole(folder):
    save_chain(folder, LabelTree(splits=([0, 3],), labels=[0, 1, 2]))
    assert sorted(entry.name for entry in folder.iterdir()) == ["C0.npz", "config.json"]
    assert load_chain(folder).level_sizes == (1, 3)


def code_matrix(path, clusters):
    """Return the matrix that puts each label into the given cluster."""
    ones = np.ones(len(clusters), np.float32)
    sp.save_npz(path, sp.csr_matrix((ones, (np.arange(len(clusters)), clusters)), shape=(len(clusters), 37)))
    return path


@pytest.mark.parametrize(
    ("nr_splits", "min_codes", "sizes"),
    [
        (16, None, (1, 3, 37, 90)),
        (4, None, (1, 3, 10, 37, 90)),
        (4, 10, (1, 10, 37, 90)),
        (4, 1, (1, 37, 90)),
        (64, None, (1, 37, 90)),
    ],
)
def test_a_bare_matrix_gets_levels_above_it(tmp_path, nr_splits, min_codes, sizes):
    path = code_matrix(tmp_path / "code.npz", np.random.default_rng(0).permutation(90) % 37)
    tree = load_chain(path, nr_splits=nr_splits, min_codes=min_codes)
    assert tree.level_sizes == sizes
    assert all(np.array_equal(order, np.arange(order.size)) for order in tree.node_order)


def test_clusters_without_labels_are_kept(tmp_path):
    tree = load_chain(code_matrix(tmp_path / "code.npz", [3, 3, 5]))
    assert tree.level_sizes == (1, 3, 37, 3)
    assert tree.labels_under(2, 3).tolist() == [0, 1]


def _write(name, content):
    return lambda copy: (copy / name).write_bytes(content)


def _save(name, matrix):
    return lambda copy: sp.save_npz(copy / name, sp.csc_matrix(matrix))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda copy: (copy / "C2.npz").unlink(), ["FOLDER/C2.npz is missing", "C0.npz to C2.npz"]),
        (
            _save("C2.npz", np.ones((60, 1))),
            ["FOLDER: matrices 1 and 2 of the cluster chain do not fit together", "4 columns", "received: 1 columns"],
        ),
        (_write("config.json", b"{len: 3}"), ["FOLDER/config.json is not JSON"]),
        (_write("config.json", b"\xff\xfe"), ["FOLDER/config.json is not JSON"]),
        *(
            (_write("config.json", text), ["does not give the depth"])
            for text in (b"{}", b"[3]", b'{"len": 0}', b'{"len": true}', b'{"len": "3"}')
        ),
        (_write("config.json", b'{"len": 2}'), ["more matrices than config.json says"]),
        (lambda copy: (copy / "config.json").unlink(), ["contains no label tree"]),
        (_write("C1.npz", b"PK\x03\x04 cut off"), ["FOLDER/C1.npz"]),
        (_save("C0.npz", np.ones((2, 2))), ["does not start with one root"]),
        (shutil.rmtree, ["does not exist"]),
    ],
)
def test_faults_of_the_folder_are_named(change, words, folder):
    change(folder)
    with pytest.raises(InputError) as error:
        load_chain(folder)
    for word in words:
        assert word in str(error.value).replace(str(folder), "FOLDER")


@pytest.mark.parametrize(
    ("clusters", "fault"),
    [
        ([[1, 0, 0], [0, 1, 1], [0, 0, 1]], r"code\.npz: label 1 has 2 parents"),
        ([[1, 0, 0], [0, 0, 0], [0, 0, 1]], r"code\.npz: label 1 has no parent"),
        (None, r"code\.npy is not a sparse matrix"),
    ],
)
def test_faults_of_the_clusters_are_named_with_the_file(clusters, fault, tmp_path):
    if clusters is None:
        np.save(path := tmp_path / "code.npy", np.eye(3, dtype=np.float32))
    else:
        sp.save_npz(path := tmp_path / "code.npz", sp.csc_matrix(clusters, dtype=float))
    refused(fault, load_chain, path)

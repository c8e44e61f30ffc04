"""The pipeline's trees by all ranks: the files of one process; ranks are threads of this process here.

``tests/distributed/test_texts_and_trees.py`` starts real ones.
"""

import pytest

from tests.collective.threads import on_ranks, results_of
from tests.files import contents
from tests.linear.cases import features, label_matrix
from xmc_tf.params import HierarchicalKMeansParams
from xmc_tf.pipeline.trees import cluster_labels, read_tree
from xmc_tf.ranks.solo import Solo
from xmc_tf.tree import kmeans
from xmc_tf.tree.label_embeddings import label_embedding

ROWS, LABELS = 120, 150
Y = label_matrix(ROWS, LABELS)
PARAMS = HierarchicalKMeansParams(max_leaf_size=3, nr_splits=4)


@pytest.mark.parametrize("by", ["sparse", "label features"])
def test_all_ranks_build_the_tree_of_one(by, tmp_path, monkeypatch):
    X = features("sparse", ROWS)
    own = label_embedding("pifa", features("dense", ROWS), Y) if by == "label features" else None
    splits, split_level = [], kmeans.split_level
    monkeypatch.setattr(kmeans, "split_level", lambda *a: (splits.append(1), split_level(*a))[1])

    def build(communicator, folder):
        folder.mkdir(exist_ok=True)
        return cluster_labels(folder, Y, X, PARAMS, communicator, label_features=own, threads=1)

    facts = build(Solo(), tmp_path / "1")
    depth = 6  # 64 leaves of at most three labels
    assert len(splits) == depth
    for ranks in (2, 3):
        splits.clear()
        folder = tmp_path / str(ranks)
        assert results_of(on_ranks(ranks, lambda one, folder=folder: build(one, folder))) == [facts] * ranks
        assert len(splits) > depth  # one rank alone would have split once a level
        assert contents(folder) == contents(tmp_path / "1")  # nothing is left but the tree
    assert read_tree(folder).nr_labels == LABELS

"""Candidates: the children of the matched parents and all labels, sampled fairly and the same everywhere."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from tests.matcher.trees import random_matrix, random_tree, worlds
from xmc_tf.matcher.candidates import CandidateSampler, EveryNode, parents_matched
from xmc_tf.matcher.tasks import LevelTask, levels_of
from xmc_tf.tree import LabelTree

TREE = LabelTree(splits=([0, 3], [0, 2, 4, 6]), labels=np.arange(6))
Y = csr_matrix([[1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0]], dtype=np.float32)
PREDICTED = csr_matrix([[0, 0, 1], [0.5, 0.2, 0], [0, 1, 0]], dtype=np.float32)


def two_levels():
    return levels_of(TREE, Y, max_match_clusters=6)


def per_document(candidates):
    """Return the candidates of each document: node -> (target, weight)."""
    rows = []
    for first, last in zip(candidates.splits[:-1], candidates.splits[1:], strict=True):
        ids = candidates.ids[first:last].tolist()
        assert ids == sorted(set(ids)), "ascending and each once"
        values = zip(candidates.targets[first:last].tolist(), candidates.weights[first:last].tolist(), strict=True)
        rows.append(dict(zip(ids, values, strict=True)))
    return rows


def brute(task, matched, document):
    """Return all candidates of a document, computed with sets."""
    labels = {node: (1.0, float(value)) for node, value in enumerate(task.targets[document].toarray()[0]) if value}
    parents = matched[document].indices
    children = [node for parent in parents for node in range(task.splits[parent], task.splits[parent + 1])]
    return dict.fromkeys(children, (0.0, 1.0)) | labels


def world_of(world):
    """Return a level of a random tree, with random labels and matched parents that need not fit them."""
    seed, depth, density = world
    tree = random_tree(seed, depth + 1)
    task = levels_of(tree, random_matrix(seed, 7, tree.nr_labels, density), max_match_clusters=10**9, weights=True)[-1]
    return task, random_matrix(seed + 1, 7, task.nr_parents, 0.4)


@given(world=worlds)
def test_all_children_of_matched_parents_and_all_labels(world):
    task, matched = world_of(world)
    found = per_document(CandidateSampler(task, matched).of(np.arange(7), epoch=0))
    assert found == [brute(task, matched, document) for document in range(7)]


@given(world=worlds, cap=st.integers(1, 12), epoch=st.integers(0, 3))
def test_capped(world, cap, epoch):
    task, matched = world_of(world)
    found = per_document(CandidateSampler(task, matched, cap, seed=3).of(np.arange(7), epoch))
    for document, chosen in enumerate(found):
        everything = brute(task, matched, document)
        assert chosen.items() <= everything.items()
        assert len(chosen) == min(cap, len(everything))
        labels = [node for node, (target, _) in everything.items() if target]
        assert sum(target for target, _ in chosen.values()) == min(cap, len(labels))


@given(world=worlds, cap=st.integers(1, 12), data=st.data())
def test_the_draws_of_a_document_do_not_depend_on_its_batch(world, cap, data):
    task, matched = world_of(world)
    sampler = CandidateSampler(task, matched, cap, seed=3)
    alone = [per_document(sampler.of(np.array([document]), epoch=2))[0] for document in range(7)]
    company = data.draw(st.lists(st.integers(0, 6), max_size=9))
    again = CandidateSampler(task, matched, cap, seed=3)
    assert per_document(again.of(np.array(company, np.int32), epoch=2)) == [alone[document] for document in company]


def one_document(nr_labels, nr_children):
    """A document whose labels are among the children of one of two parents, and the sampler's parts."""
    targets = csr_matrix(
        (np.ones(2 * nr_labels, np.float32), np.tile(np.arange(nr_labels), 2), [0, nr_labels, 2 * nr_labels]),
        shape=(2, nr_children + 1),
    )
    task = LevelTask(2, np.array([0, nr_children, nr_children + 1]), targets)
    return task, csr_matrix([[1.0, 0.0], [1.0, 0.0]])


def test_negatives_are_drawn_fairly_and_anew_each_epoch():
    task, matched = one_document(nr_labels=2, nr_children=22)
    sampler = CandidateSampler(task, matched, cap=7, seed=0)
    draws = np.zeros((4000, 20))
    for epoch in range(len(draws)):
        draws[epoch, sampler.of(np.array([0]), epoch).ids[2:] - 2] = 1
    # 5 of 20 without replacement: each a quarter of the time, each pair 5/20 · 4/19 of it. Five deviations at most.
    each = draws.mean(axis=0)
    assert np.abs(each - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / len(draws))
    pairs = (draws.T @ draws / len(draws))[np.triu_indices(20, 1)]
    share = 5 / 20 * 4 / 19
    assert np.abs(pairs - share).max() < 5 * np.sqrt(share / len(draws))
    # One epoch says nothing of the next.
    overlap = (draws[1:] * draws[:-1]).sum(axis=1).mean()
    assert abs(overlap - 5 * 0.25) < 0.1


def test_seed_level_and_document_change_the_draws():
    task, matched = one_document(nr_labels=2, nr_children=40)
    draw = CandidateSampler(task, matched, 12, seed=0).of(np.array([0, 1]), epoch=0)
    deeper = LevelTask(3, task.splits, task.targets)
    others = [
        CandidateSampler(task, matched, 12, seed=1).of(np.array([0]), epoch=0),
        CandidateSampler(deeper, matched, 12, seed=0).of(np.array([0]), epoch=0),
        CandidateSampler(task, matched, 12, seed=0).of(np.array([0]), epoch=1),
    ]
    rows = [draw.ids[:12], draw.ids[12:], *(other.ids for other in others)]
    assert len({tuple(row.tolist()) for row in rows}) == len(rows)


def test_at_the_top_all_nodes_are_candidates_whatever_the_cap():
    top, _ = two_levels()
    assert parents_matched(top, "tfn+man") is None
    found = CandidateSampler(top, None, cap=1).of(np.array([1, 2]), epoch=0)
    assert found.ids.tolist() == [0, 1, 2, 0, 1, 2]
    assert found.targets.tolist() == [0, 1, 1, 0, 0, 0]


def test_true_and_predicted_parents_by_hand():
    top, labels = two_levels()
    true = parents_matched(labels, "tfn", top.targets)
    assert true.toarray().tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 0]]
    predicted = parents_matched(labels, "man", None, PREDICTED)
    assert predicted.toarray().tolist() == [[0, 0, 1], [1, 1, 0], [0, 1, 0]]
    both = parents_matched(labels, "tfn+man", top.targets, PREDICTED)
    assert both.toarray().tolist() == [[1, 0, 1], [1, 1, 1], [0, 1, 0]]
    assert both.has_canonical_format

    def ids(matched):
        return [list(row) for row in per_document(CandidateSampler(labels, matched).of(np.arange(3), epoch=0))]

    assert ids(true) == [[0, 1], [2, 3, 4, 5], []]
    # Labels outside of the predicted parents are there all the same.
    assert ids(predicted) == [[0, 4, 5], [0, 1, 2, 3, 4], [2, 3]]
    assert ids(both) == [[0, 1, 4, 5], [0, 1, 2, 3, 4, 5], [2, 3]]


def test_unsorted_and_repeated_parents_count_once():
    _, labels = two_levels()
    matched = csr_matrix((np.ones(3), [2, 0, 2], [0, 3, 3, 3]), shape=(3, 3))
    found = CandidateSampler(labels, matched).of(np.array([0]), epoch=0)
    assert found.ids.tolist() == [0, 1, 4, 5]


def test_every_node_as_a_candidate_returns_the_labels():
    targets = csr_matrix(np.array([[0, 2, 0], [0, 0, 0], [1, 0, 3]], np.float32))
    told = EveryNode(LevelTask(1, np.array([0, 3]), targets)).of(np.array([2, 1, 0]), epoch=4)
    assert told.ids.tolist() == [0, 2, 1]
    assert told.splits.tolist() == [0, 2, 2, 3]
    assert told.targets.tolist() == [1, 1, 1]
    assert told.weights.tolist() == [1, 3, 2]

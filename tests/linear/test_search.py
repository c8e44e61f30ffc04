"""Beam search, also restricted to some labels, against its definition; contributions to scores add up to them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_matrix, csr_matrix

from tests.files import contents
from tests.linear.cases import chains, features, full_matrix, random_chain, random_model, small_model, sparse_rows
from tests.linear.searching import assert_same_ranking, beam_search, rows_of
from tests.refusals import refused
from xmc_tf.data import Features, as_features
from xmc_tf.models.explaining.explain import contributions
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import POST_PROCESSORS
from xmc_tf.rankers import XLinear

posts = pytest.mark.parametrize("post", POST_PROCESSORS)


def model_for(X, chain, **options):
    return random_model(chain, X.nr_sparse, X.nr_dense, **options)


@pytest.mark.parametrize("post", [*POST_PROCESSORS, None])
@settings(max_examples=10)
@given(
    chain=chains(), kind=st.sampled_from(["sparse", "dense", "both"]), beam=st.integers(1, 4) | st.just(1000),
    top=st.integers(1, 6) | st.just(50), bias=st.sampled_from([0.0, 1.0, 3.0]), data=st.data(),
)  # fmt: skip
def test_a_beam_finds_and_drops_what_the_definition_does(post, chain, kind, beam, top, bias, data):
    """Without one post-processor for all, each level has its own."""
    X = features(kind, 6, seed=1)
    own = data.draw(st.lists(st.sampled_from(POST_PROCESSORS), min_size=len(chain), max_size=len(chain)))
    model = model_for(X, chain, seed=beam, bias=bias, posts="l3-hinge" if post else own)
    predicted = model.predict(X, beam_size=beam, only_topk=top, post_processor=post, threads=1)
    for x, row in zip(full_matrix(X), rows_of(predicted), strict=True):
        assert_same_ranking(row, beam_search(model, x, beam, top, post))


@settings(max_examples=20)
@given(chain=chains(), beam=st.integers(1, 5), top=st.integers(1, 8), post=st.sampled_from(POST_PROCESSORS))
def test_ties_go_to_the_lower_number(chain, beam, top, post):
    """Whole-number weights give exactly equal scores."""
    X = as_features(csr_matrix(np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]], np.float32)))
    model = random_model(chain, 3, seed=top)
    for level in model.levels:
        level.weights.data = np.sign(level.weights.data)
    predicted = model.predict(X, beam_size=beam, only_topk=top, post_processor=post, threads=1)
    for x, row in zip(full_matrix(X), rows_of(predicted), strict=True):
        assert [label for label, _ in row] == [label for label, _ in beam_search(model, x, beam, top, post)]
        assert row == sorted(row, key=lambda pair: (-pair[1], pair[0]))


@pytest.mark.parametrize("kind", ["sparse", "both"])
def test_a_batch_is_its_queries_one_by_one_on_any_number_of_threads_and_in_small_blocks(kind, monkeypatch):
    X = features(kind, 50)
    model = model_for(X, random_chain(60, [4, 15]))
    whole = rows_of(model.predict(X, beam_size=3, only_topk=5, threads=1))
    for threads in (2, 3):
        assert rows_of(model.predict(X, beam_size=3, only_topk=5, threads=threads)) == whole
    alone = [model.predict(X.rows(slice(i, i + 1)), beam_size=3, only_topk=5, threads=1) for i in range(50)]
    assert [rows_of(one)[0] for one in alone] == whole
    assert model.predict(X.rows(slice(0, 0))).shape == (0, 60)
    monkeypatch.setattr("xmc_tf.rankers.xlinear.BLOCK", 7)
    assert rows_of(model.predict(X, beam_size=3, only_topk=5, threads=1)) == whole


def test_dense_features_may_come_as_sparse_ones():
    both = features("both", 10)
    model = model_for(both, random_chain(30, [5]))
    as_one = csr_matrix(full_matrix(both).astype(np.float32))
    ours, theirs = model.predict(both), model.predict(as_features(as_one))
    for left, right in zip(rows_of(ours), rows_of(theirs), strict=True):
        assert_same_ranking(left, right)
    assert rows_of(model.predict(both)) == rows_of(ours)  # the weights are arranged again each time


@posts
@settings(max_examples=5)
@given(chain=chains(), kind=st.sampled_from(["sparse", "both"]))
def test_selected_outputs(post, chain, kind):
    X = features(kind, 6, seed=4)
    model = model_for(X, chain)
    rng = np.random.default_rng(0)
    selected = csr_matrix(rng.random((6, model.nr_labels)) < 0.4, dtype=np.float32)
    scored = model.predict_selected(X, selected, post_processor=post)
    assert np.array_equal(scored.indptr, selected.indptr)
    assert np.array_equal(scored.indices, selected.sorted_indices().indices)
    for x, row in zip(full_matrix(X), rows_of(scored), strict=True):
        every = dict(beam_search(model, x, 1000, model.nr_labels, post))
        np.testing.assert_allclose(
            [score for _, score in row], [every[label] for label, _ in row], rtol=1e-4, atol=1e-5
        )


def test_codes_set_the_first_beam_and_its_scores():
    X = features("sparse", 8)
    chain = random_chain(40, [6])[1:]
    model = model_for(X, chain)
    rng = np.random.default_rng(1)
    codes = csr_matrix(np.where(rng.random((8, 6)) < 0.4, rng.random((8, 6)), 0).astype(np.float32))
    for post in ("l3-hinge", "log-sigmoid", "noop"):
        predicted = model.predict(X, codes=codes, only_topk=7, post_processor=post)
        for x, row, start in zip(full_matrix(X), rows_of(predicted), rows_of(codes), strict=True):
            assert_same_ranking(row, beam_search(model, x, 10, 7, post, dict(start))) if start else None
            assert bool(row) == bool(start)
    everywhere = rows_of(model.predict(X, only_topk=7))
    assert everywhere == rows_of(model.predict(X, only_topk=7, codes=csr_matrix(np.ones((8, 6), np.float32))))


def test_codes_in_any_form():
    X = features("sparse", 2)
    model = model_for(X, random_chain(40, [6])[1:])
    tidy = csr_matrix(np.array([[0, 0.5, 0, 0, 0.25, 0], [1, 0, 0, 0, 0, 0]], np.float32))
    untidy = csr_matrix((np.array([0.25, 0.25, 0.25, 1]), [4, 1, 1, 0], [0, 3, 4]), shape=(2, 6))
    assert rows_of(model.predict(X, codes=untidy)) == rows_of(model.predict(X, codes=tidy.tocsc()))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"codes": csr_matrix((8, 7), dtype=np.float32)}, ["8 documents × 6", "8 × 7"]),
        ({"codes": csr_matrix((7, 6), dtype=np.float32)}, ["7 × 6"]),
        ({"beam_size": 0}, ["at least 1"]),
        ({"only_topk": -1}, ["at least 1"]),
        ({"post_processor": "l5-hinge"}, ["unknown post-processor 'l5-hinge'", "log-l4-hinge"]),
        ({"selected": csr_matrix((8, 41), dtype=np.float32)}, ["8 documents × 40 labels", "8 × 41"]),
        ({"X": Features(sparse_rows(8, 31))}, ["30 columns, as in training", "31 columns"]),
    ],
)
def test_impossible_calls_are_refused(settings, words):
    X = features("sparse", 8)
    model = model_for(X, [*random_chain(40, [6, 10])[1:]])
    call = model.predict_selected if "selected" in settings else model.predict
    refused(words, call, **{"X": X, **settings})


def test_selected_labels_outside_the_tree_are_refused():
    """A pruned model has labels without a parent, which the search never reaches."""
    X, chain = features("sparse", 4), random_chain(12, [3])
    pruned = chain[1].tolil()
    pruned[5] = 0
    model = random_model([chain[0], csc_matrix(pruned.tocsc(), dtype=np.float32)], X.nr_sparse)
    assert not model.predict(X, beam_size=3, only_topk=12).toarray()[:, 5].any()
    refused("label 5 is not in the tree", model.predict_selected, X, csr_matrix(np.ones((4, 12), np.float32)))


def test_predictions_are_a_matrix_like_any_other():
    """Rows are in order of score; scipy must know that they are not in order of label."""
    X = features("sparse", 8)
    predicted = model_for(X, random_chain(40, [6])).predict(X, only_topk=9)
    assert isinstance(predicted, csr_matrix)
    assert not predicted.has_sorted_indices
    assert predicted.dtype == np.float32
    sorted_by_label = predicted.sorted_indices()
    np.testing.assert_array_equal(predicted.toarray(), sorted_by_label.toarray())
    assert (predicted + sorted_by_label - 2 * predicted).nnz == 0


def test_the_models_settings_are_the_defaults():
    X = features("sparse", 8)
    model = model_for(X, random_chain(40, [6]), posts="sigmoid")
    assert isinstance(model, XLinear)
    predicted = model.predict(X)
    assert np.diff(predicted.indptr).tolist() == [20] * 8
    assert rows_of(predicted) == rows_of(model.predict(X, beam_size=20, only_topk=20, post_processor="sigmoid"))


@pytest.mark.parametrize(
    ("kind", "post"), [("sparse", "l3-hinge"), ("dense", "sigmoid"), ("both", "log-sigmoid"), ("both", "noop")]
)
def test_the_sum_is_the_score_before_the_post_processor(kind, post):
    X = features(kind, 4)
    ranker = random_model(random_chain(23, (3, 7)), X.nr_sparse, X.nr_dense, posts=post)
    everything = csr_matrix(np.ones((4, 23), np.float32))
    raw = ranker.predict_selected(X, everything, post_processor="noop").toarray()
    scores = ranker.predict_selected(X, everything).toarray()
    for row in range(4):
        document = X.rows(slice(row, row + 1))
        for label in range(23):
            path = contributions(ranker, document, label)
            last = path[-1]
            assert last.node == label
            assert last.weights @ last.values + last.dense + last.bias == pytest.approx(last.raw)
            assert last.raw == pytest.approx(raw[row, label], abs=1e-5)
            assert last.score == pytest.approx(scores[row, label], rel=1e-4, abs=1e-6)
            assert last.dense == 0 or X.nr_dense > 0


@settings(max_examples=20)
@given(chain=chains(), data=st.data(), beam=st.integers(1, 5), post=st.sampled_from(POST_PROCESSORS))
def test_the_search_visits_only_nodes_above_the_labels(chain, data, beam, post):
    """The result is that of a tree of only these labels, even with a narrow beam."""
    X = features("both", 5, seed=beam)
    model = model_for(X, chain, posts=post, seed=beam)
    labels = data.draw(st.lists(st.integers(0, model.nr_labels - 1), min_size=1, unique=True))
    model.set_output_constraint(labels)
    predicted = model.predict(X, beam_size=beam, only_topk=4, threads=1)
    assert predicted.shape == (5, model.nr_labels)
    for x, row in zip(full_matrix(X), rows_of(predicted), strict=True):
        assert {label for label, _ in row} <= set(labels)
        assert_same_ranking(row, beam_search(model, x, beam, 4))
    # With room for all nodes: what the whole model predicts, without the other labels.
    wide = model.predict(X, beam_size=1000, only_topk=1000, threads=1)
    model.set_output_constraint(None)
    whole = model.predict(X, beam_size=1000, only_topk=1000, threads=1)
    for ours, row in zip(rows_of(wide), rows_of(whole), strict=True):
        assert_same_ranking(ours, [pair for pair in row if pair[0] in labels])


def test_another_choice_replaces_the_first_and_none_lifts_it():
    model, X, _ = small_model()
    everywhere = rows_of(model.predict(X))
    model.set_output_constraint([1, 2])
    model.set_output_constraint(np.array([3, 5]))
    assert {label for row in rows_of(model.predict(X)) for label, _ in row} == {3, 5}
    model.set_output_constraint(None)
    assert rows_of(model.predict(X)) == everywhere
    model.set_output_constraint(range(model.nr_labels))
    assert rows_of(model.predict(X)) == everywhere


def test_the_folder_stays_as_it_is_and_a_saved_model_stays_restricted(tmp_path):
    model, X, _ = small_model("sparse")
    model.save(tmp_path / "m")
    before = contents(tmp_path / "m")
    loaded = XLinear.load(tmp_path / "m")
    loaded.set_output_constraint([3, 5, 8])
    restricted = rows_of(loaded.predict(X))
    assert contents(tmp_path / "m") == before
    loaded.save(tmp_path / "r")
    assert rows_of(XLinear.load(tmp_path / "r").predict(X)) == restricted


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([], "is empty"),
        ([23], "label 23 does not exist(.|\n)*from 0 to 22"),
        ([-1], "label -1"),
        ([0.5], "whole numbers"),
    ],
)
def test_impossible_labels_are_refused(labels, said):
    model, _, _ = small_model()
    refused(said, model.set_output_constraint, labels)


def test_a_text_model_is_restricted_by_its_ranker(model, corpus):
    from xmc_tf.data import load_features

    loaded = XRLinear.load(model)
    loaded.ranker.set_output_constraint([2])
    assert {row[0][0] for row in loaded.best(load_features([corpus / "X.npz"]), k=3)} == {loaded.names[2]}

"""Predictions restricted to some labels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.files import contents
from tests.linear.cases import chains, features, full_matrix, random_model, small_model
from tests.linear.searching import assert_same_ranking, beam_search, rows_of
from xmc_tf.common.errors import InputError
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import POST_PROCESSORS
from xmc_tf.rankers import XLinear


def model_for(X, chain, **more):
    return random_model(chain, X.nr_features - X.nr_dense, X.nr_dense, **more)


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
    with pytest.raises(InputError, match=said):
        model.set_output_constraint(labels)


def test_a_text_model_is_restricted_by_its_ranker(model, corpus):
    from xmc_tf.data import load_features

    loaded = XRLinear.load(model)
    loaded.ranker.set_output_constraint([2])
    assert {row[0][0] for row in loaded.best(load_features([corpus / "X.npz"]), k=3)} == {loaded.names[2]}

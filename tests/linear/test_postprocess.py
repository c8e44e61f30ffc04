"""Post-processors: their values, and the search's short cut, which must drop no node of the beam."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from tests.linear.searching import chained, own_score
from xmc_tf.params import POST_PROCESSORS
from xmc_tf.rankers.kernels.postprocess import additive, chain, least_raw, neutral, post_processor_code, squash

posts = pytest.mark.parametrize("post", POST_PROCESSORS)


@njit
def scored(code, raw, parent):
    """Return a node's score, computed as in the search."""
    return np.float32(chain(code, squash(code, raw), parent))


@njit
def dropped(code, raws, worst, parent):
    """Return a mask of the raw scores that the search skips."""
    return raws < least_raw(code, worst, parent)


@posts
def test_values(post):
    code = post_processor_code(post)
    raws = np.linspace(-30, 30, 101).astype(np.float32)
    np.testing.assert_allclose([squash(code, raw) for raw in raws], own_score(post, raws.astype(float)), 1e-4, 1e-30)
    assert chain(code, 0.5, neutral(code)) == 0.5
    assert additive(code) == post.startswith("log-")
    parent = np.float32(-0.25 if post.startswith("log-") else 0.25)
    assert scored(code, np.float32(0.5), parent) == pytest.approx(chained(post, 0.5, float(parent)), rel=1e-6)


@posts
@settings(max_examples=60)
@given(data=st.data())
def test_the_short_cut_drops_no_node_of_the_beam(post, data):
    """For any parent and any worst score so far; scores next to each other in float32 are the critical case."""
    code = post_processor_code(post)
    scale = data.draw(st.sampled_from([1e-3, 1.0, 20.0, 200.0]))
    centre = data.draw(st.floats(-3, 3)) * scale
    parent = np.float32(data.draw(st.floats(-80, 0) if additive(code) else st.floats(0, 1)))
    if data.draw(st.booleans()):  # codes from elsewhere may be anything
        parent = np.float32(data.draw(st.floats(-100, 100)))
    near = np.float32(centre) + np.linspace(-1, 1, 41) * data.draw(st.sampled_from([1e-6, 1e-3, 0.1, 1.0]))
    raws = np.sort(np.concatenate([near, [-1000.0, -20.0, -1.0, 0.0, 1.0, 2.0, 20.0]])).astype(np.float32)
    scores = np.array([scored(code, raw, parent) for raw in raws])
    worst = scores[data.draw(st.integers(0, len(raws) - 1))]
    gone = dropped(code, raws, worst, parent)
    assert not np.any(gone & (scores >= worst))


@posts
def test_the_short_cut_drops_most_worse_nodes(post):
    code = post_processor_code(post)
    parent = np.float32(neutral(code))
    raws = np.linspace(-3, 0.5, 200).astype(np.float32)
    worst = scored(code, np.float32(0.6), parent)
    assert dropped(code, raws, worst, parent).all()
    assert not math.isnan(least_raw(code, worst, parent))

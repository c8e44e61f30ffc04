"""Beam search by its definition, in plain Python and double precision."""

import numpy as np


def own_score(post, raw):
    """Return a node's score without its parent's."""
    if post == "noop":
        return raw
    if post.endswith("sigmoid"):
        return -np.logaddexp(0, -raw) if post.startswith("log-") else 1 / (1 + np.exp(-raw))
    loss = np.maximum(1 - raw, 0) ** int(post[-7])
    return -loss if post.startswith("log-") else np.exp(-loss)


def chained(post, raw, parent):
    """Return a node's score, combined with its parent's; ``parent`` is None for the root's children."""
    own = own_score(post, raw)
    if post == "noop" or parent is None:
        return own
    return own + parent if post.startswith("log-") else own * parent


def raw_scores(model, x):
    """Return the raw scores of all nodes, level by level."""
    out = []
    for level in model.levels:
        weights = level.weights.toarray().astype(np.float64)
        out.append(np.append(x, level.bias)[: len(weights)] @ weights)
    return out


def beam_search(model, x, beam, top, post=None, codes=None):
    """Return the best labels of one document as a list of (label, score); equal scores by label number."""
    raw = raw_scores(model, x)
    parents = dict.fromkeys(range(model.levels[0].clusters.shape[1])) if codes is None else codes
    for t, level in enumerate(model.levels):
        clusters = level.clusters.toarray() > 0
        name = post or level.pred_params.post_processor
        found = [
            (int(node), float(np.float32(chained(name, raw[t][node], score))))
            for parent, score in parents.items()
            for node in np.flatnonzero(clusters[:, parent])
        ]
        found.sort(key=lambda pair: (-pair[1], pair[0]))
        found = found[: top if t == model.depth - 1 else beam]
        parents = dict(found)
    return found


def rows_of(predicted):
    """Return a prediction's rows as lists of (label, score)."""
    return [
        list(zip(predicted.indices[a:b].tolist(), predicted.data[a:b].tolist(), strict=True))
        for a, b in zip(predicted.indptr[:-1], predicted.indptr[1:], strict=True)
    ]


def assert_same_ranking(ours, expected, tolerance=2e-5):
    """Assert the same labels in the same order; scores that differ only by rounding may change places."""
    assert len(ours) == len(expected)
    ours_scores, expected_scores = (np.array([score for _, score in row]) for row in (ours, expected))
    np.testing.assert_allclose(ours_scores, expected_scores, rtol=tolerance, atol=tolerance)
    by_label = dict(expected)
    for place, (label, score) in enumerate(ours):
        near_last = abs(score - expected_scores[-1]) <= 2 * tolerance * max(1, abs(score))
        assert near_last or abs(by_label[label] - score) <= tolerance * max(1, abs(score)), (place, label)

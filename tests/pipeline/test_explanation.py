"""Explanations of an XR-Transformer: the embedding's share, and the label head."""

import pytest

from tests.pipeline.corpus import texts_and_labels


def test_the_embedding_and_the_words_add_up(corpus, frozen):
    text = texts_and_labels(corpus, "tst")[0][0]
    found = frozen.explain(text, k=3)
    assert [(one.name, pytest.approx(one.score)) for one in found.labels] == frozen.best([text], k=3)[0]
    for label in found.labels:
        (tree,) = label.evidence
        assert tree.score == pytest.approx(label.score, rel=1e-4)
        for node in tree.path:
            total = sum(one.amount for one in node.contributions) + node.embedding + node.bias
            assert total == pytest.approx(node.raw)
            assert node.embedding != 0
    assert "embedding" in found.to_text()


@pytest.mark.parametrize("method", ["average", "root_average", "transformer-only", "concat-only"])
def test_label_head_and_tree_are_the_sources_that_the_method_uses(corpus, tuned, method):
    text = texts_and_labels(corpus, "tst")[0][1]
    tuned.metadata = tuned.metadata.replace(ensemble_method=method)
    label = tuned.explain(text, k=1).labels[0]
    assert (label.label, label.score) == (
        pytest.approx(tuned.predict([text], only_topk=1).indices[0]),
        pytest.approx(tuned.predict([text], only_topk=1).data[0]),
    )
    sources = {one.source: one.score for one in label.evidence}
    expected = {"transformer-only": ["label head"], "concat-only": ["tree"]}
    assert list(sources) == expected.get(method, ["label head", "tree"])
    power = 0.5 if method == "root_average" else 1
    mean = (sum(score**power for score in sources.values()) / len(sources)) ** (1 / power)
    assert mean == pytest.approx(label.score, rel=1e-4)
    assert sum(share.amount for share in label.shares) == pytest.approx(label.score, rel=1e-4)
    assert [share.source for share in label.shares] == list(sources)

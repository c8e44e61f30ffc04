"""BERT in the served graph against the encoder that it was made of."""

import numpy as np
import pytest
import tensorflow as tf

from tests.encoder.tiny import documents, tiny_encoder
from xmc_tf.serving.bert_graph import BertGraph


@pytest.mark.parametrize("pooling", ["mean", "cls", "pooler", "max", "last"])
def test_the_same_vectors(pooling):
    encoder = tiny_encoder("bert", pooling, seed=3)
    for layer in encoder.model.bert.encoder.layer:  # random as all else, and not 0 and 1 as they are drawn
        for variable in layer.variables:
            variable.assign_add(tf.random.stateless_normal(variable.shape, (1, len(variable.shape))) * 0.1)
    graph = BertGraph.of(encoder)
    assert graph is not None
    ids, mask = map(tf.constant, documents("bert", (7, 3, 1, 12), width=14))
    expected = encoder(ids, mask).numpy()
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(graph(ids, mask), expected, atol=2e-5)
    # What stands behind a text is not looked at.
    np.testing.assert_allclose(graph(tf.where(mask > 0, ids, 9), mask), expected, atol=2e-5)


def test_a_text_without_tokens():
    graph = BertGraph.of(tiny_encoder("bert", "mean"))
    ids, mask = documents("bert", (4, 2))
    mask[1] = 0
    found = graph(tf.constant(ids), tf.constant(mask)).numpy()
    np.testing.assert_array_equal(found[1], 0)
    np.testing.assert_allclose(found[0], graph(tf.constant(ids[:1]), tf.constant(mask[:1]))[0], atol=1e-6)


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [("mpnet", {}), ("bert", {"hidden_act": "relu"}), ("bert", {"position_embedding_type": "relative_key"})],
)
def test_other_encoders_are_left_as_they_are(architecture, changes):
    assert BertGraph.of(tiny_encoder(architecture, **changes)) is None


def test_an_encoder_that_would_give_other_numbers_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr("xmc_tf.serving.bert_graph._ABSENT", 0.0)  # attends to what is not there
    assert BertGraph.of(tiny_encoder("bert")) is None


def test_few_operations():
    graph = BertGraph.of(tiny_encoder("bert", "mean"))
    sizes = tf.TensorSpec([None, None], tf.int32)
    traced = tf.function(graph, autograph=False).get_concrete_function(sizes, sizes).graph
    products = [operation for operation in traced.get_operations() if operation.type == "MatMul"]
    assert len(products) == 2 * 4  # layers: query, key and value; output; and the two wide ones
    assert all(len(product.outputs[0].shape) == 2 for product in products)

"""The few sizes that an encoder computes with."""

import numpy as np
import tensorflow as tf

from tests.encoder.tiny import documents, tiny_encoder


def test_texts_of_many_lengths_are_computed_with_few_sizes(monkeypatch):
    """What the kernels compile a program for is the number of rows of the products."""
    encoder = tiny_encoder("bert", "mean")
    seen = set()
    product = tf.matmul

    def noted(a, b, **how):
        seen.add((tuple(a.shape), tuple(b.shape)) if len(a.shape) == 2 else None)
        return product(a, b, **how)

    monkeypatch.setattr(tf, "matmul", noted)
    shapes = set()
    for lengths in [(length,) for length in range(1, 17)] + [(9, 3, 1), (8, 6, 2), (4, 9, 3)]:
        ids, mask = documents("bert", lengths)
        encoder(tf.constant(ids), tf.constant(mask))
        shapes |= {shape[0][0] for shape in seen - {None}}
    assert shapes == {8, 16}


def test_the_same_vectors_at_the_borders_of_sizes():
    encoder = tiny_encoder("bert", "mean")
    for lengths in [(8,), (9,), (7,), (16, 16, 16, 16, 16, 16, 16, 16), (16,) * 8 + (1,), (13,) * 11]:
        ids, mask = map(tf.constant, documents("bert", lengths))
        np.testing.assert_allclose(encoder(ids, mask), encoder(ids, mask, packed=False), atol=2e-5)

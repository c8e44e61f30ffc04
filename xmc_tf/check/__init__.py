"""``python -m xmc_tf.check``: check that all ranks can reach each other, or that a model is intact."""

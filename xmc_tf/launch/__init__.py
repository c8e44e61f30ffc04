"""``python -m xmc_tf.launch``: run a program on several ranks of this machine."""

"""Linear rankers over a label tree, trained by dual coordinate descent and searched with a beam, without TensorFlow."""

from xmc_tf.rankers.level import Level
from xmc_tf.rankers.xlinear import XLinear

# Training (``fit.train_rankers``) is imported from its module: prediction does not need it.

__all__ = ["Level", "XLinear"]

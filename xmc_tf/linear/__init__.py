"""Linear rankers over a label tree: trained by dual coordinate descent, searched by beam. No TensorFlow."""

from xmc_tf.linear.fit import train_rankers
from xmc_tf.linear.level import Level
from xmc_tf.linear.xlinear import XLinear

__all__ = ["Level", "XLinear", "train_rankers"]

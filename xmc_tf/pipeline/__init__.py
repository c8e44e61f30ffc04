"""From text to model: the tree, the fine-tuned encoder, the rankers, each a stage that is made once."""

from xmc_tf.pipeline.model import XTransformer

__all__ = ["XTransformer"]

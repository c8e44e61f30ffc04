"""Label names and fusion as TensorFlow ops."""

from xmc_tf.serving.evidence.fused_search import EvidenceParts, FusedSearch

__all__ = ["EvidenceParts", "FusedSearch"]

"""The parts of a fine-tuned model that a SavedModel is made of."""

from xmc_tf.common.errors import InputError
from xmc_tf.pipeline.model import XTransformer
from xmc_tf.serving.encoder_vectors import EncoderVectors
from xmc_tf.serving.export import ModelParts


def parts_of(model: XTransformer) -> ModelParts:
    """Takes a model apart for :func:`xmc_tf.serving.export.export_model`.

    Args:
        model: with rankers; they are what an exported model answers by.

    Raises:
        InputError: when it answers by its label head, or has dense features beside its vectors.
    """
    method = str(model.facts.get("ensemble_method", "concat-only"))
    if method != "concat-only":
        raise InputError(
            f"this model answers by {method}, which an exported one cannot",
            expected="ensemble_method concat-only: the rankers' answers, on features and the encoder's vector",
            received=method,
            fix='set "ensemble_method": "concat-only" in its params.json, and see what that costs with predict',
        )
    ranker = model.ranker
    dim = int(model.facts["embedding_dim"])
    if ranker.nr_dense != dim:
        raise InputError(
            "dense features beside the encoder's vector cannot be exported",
            expected=f"{dim} dense features",
            received=str(ranker.nr_dense),
        )
    vectors = EncoderVectors(model.encoder, model.tokenizer, int(model.facts["truncate_length"]))
    return ModelParts(ranker, model.names, model.tfidf if "features" in model.parts else None, vectors)

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.fusion import bounded_post_processor
from xmc_tf.models.parts import LazyModelFolder
from xmc_tf.models.prediction import head_post_processor
from xmc_tf.params.choices import MEANS
from xmc_tf.params.pools import FUSED_LABELS, LABELS_OF_PART
from xmc_tf.serving.encoder_embeddings import EncoderEmbeddings
from xmc_tf.serving.export import ModelParts
from xmc_tf.serving.fused_search import EvidenceParts
from xmc_tf.serving.label_head import LabelHeadParts


def parts_of(model: LazyModelFolder) -> ModelParts:
    """Return the parts of a model that a SavedModel contains; raise an error if the model cannot be exported."""
    head = _head_of(model)
    ranker = model.ranker
    dim = model.metadata.embedding_dim
    if ranker.nr_dense != dim:
        raise InputError(
            "a model with dense features besides the embedding cannot be exported", expected=f"{dim} dense features",
            received=str(ranker.nr_dense),
        )  # fmt: skip
    length = model.metadata.embedding_weight
    vectors = EncoderEmbeddings(model.tensorflow_encoder, model.tokenizer, model.metadata.reading, length)
    evidence = None
    if model.evidence is not None:
        post = bounded_post_processor(model.post_processor)
        evidence = EvidenceParts(model.evidence.fusion, FUSED_LABELS, post, model.evidence.names)
    tfidf = model.tfidf if "features" in model.parts else None
    return ModelParts(ranker, model.names, tfidf, vectors, head, evidence)


def _head_of(model: LazyModelFolder) -> LabelHeadParts | None:
    """Return the label head, or None if the model uses only its rankers; raise an error for unsupported methods."""
    method = model.metadata.ensemble_method
    if method == "concat-only":
        return None
    heads = model.matcher.heads if method in MEANS else []
    if len(heads) != 1 or not heads[0].scaling.normalize:
        raise InputError(
            f"the ensemble method {method}"
            + (f" with this label head (fine-tuned levels: {len(heads)})" if heads else "")
            + " cannot be exported",
            expected=f"concat-only, or {' or '.join(MEANS)} with a label head of one level that normalizes embeddings",
            received=method,
            fix='set "ensemble_method": "concat-only" in its params.json, and measure the effect with predict',
        )
    rows, labels = heads[0].rows, model.matcher.labels
    assert labels is not None  # the mean is over labels
    by_label = np.empty_like(rows)
    by_label[labels] = rows
    return LabelHeadParts(
        by_label, heads[0].scaling.factor, head_post_processor(model, method), LABELS_OF_PART, method,
        model.new_to_head,
    )  # fmt: skip

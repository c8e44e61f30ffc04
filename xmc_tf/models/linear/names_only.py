"""Training on label names alone, for users who have a vocabulary and no labelled document yet."""

import dataclasses
import logging
from collections.abc import Sequence

import numpy as np

from xmc_tf.common.activity import doing
from xmc_tf.common.errors import InputError
from xmc_tf.data import JoinedTexts, Texts, as_features
from xmc_tf.data.vocabularies import LabelHierarchy
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.fusion.similarity import KNOWN, MOST_MEASURED, Embed, Similarity
from xmc_tf.label_names import NameDocuments
from xmc_tf.models.incremental.training_data import TrainedDocuments, TrainingData
from xmc_tf.models.linear.executors import InMemory, fit_tfidf
from xmc_tf.models.linear.parts import LinearParts
from xmc_tf.models.linear.training import LinearData, LinearOptions, train_linear
from xmc_tf.params.tfidf import with_rare_words
from xmc_tf.store.models import NO_PROBABILITIES

_LOG = logging.getLogger(__name__)
_NO_PROBABILITIES = "no document is labelled; scores rank labels as they were right with other vocabularies"


@doing("learning the names of labels")
def train_on_names(
    lines: Sequence[str], texts: Texts, options: LinearOptions, hierarchy: LabelHierarchy | None = None,
    embed: Embed | None = None, embedding_weight: float = 1.0,
) -> LinearParts:  # fmt: skip
    """Train a model that finds labels by their names: names are its documents, and are found in texts.

    Args:
        lines: the name of each label, with alternative names after tabs.
        texts: texts without labels, which show how frequent words are; may be empty.
        options: options of features, trees and rankers.
        hierarchy: the broader terms of labels.
        embed: an encoder, whose embeddings are further features, and by which texts and names are compared.
        embedding_weight: length of the embeddings in the features.
    """
    _LOG.warning("no document has labels: the model only knows their names, and its scores are not probabilities")
    names = NameDocuments.of(lines)
    if not names.texts:
        raise InputError("no name of a label has letters", fix="give the names of the labels, not their numbers")
    every = JoinedTexts([texts, names.texts], len(names.texts))
    tfidf, features = fit_tfidf(every, with_rare_words(options.params.tfidf), options.threads)
    assert features.sparse is not None
    params = dataclasses.replace(options.params, tfidf=tfidf.params)  # with the detected language
    X, similarity = as_features(features.sparse[len(texts) :]), None
    if embed is not None:
        some = [every[row] for row in range(0, len(texts), -(-len(texts) // MOST_MEASURED))]
        vectors, documents = embed(names.texts), embed(some)
        X = as_features((X.sparse, np.float32(embedding_weight) * vectors))
        similarity = Similarity.of_names(names.Y.indices, vectors, documents)
    parts = train_linear(
        LinearData(names.Y, names.texts, X, tfidf, lines, hierarchy),
        dataclasses.replace(
            options, params=params, probabilities=False, label_names=False, keep_training_data=False
        ),
        InMemory(options.threads),
    )  # fmt: skip
    read = texts if len(texts) else names.texts
    evidence = ProbabilityModel.of_names(
        lines, read, information=tfidf.information(features.sparse[: len(read)]), threads=options.threads,
        language=tfidf.params.language, similarity=similarity,
    )  # fmt: skip
    if similarity is not None and evidence.names is not None:
        _check_language(similarity.rank_of_mentions(documents, evidence.names.mentions(some)))
    return dataclasses.replace(
        parts, evidence=evidence, own_documents=TrainedDocuments.of([]),
        own_training=None if embed else TrainingData.of(X, names.Y, params.ranker, len(names.texts)),
        metadata=parts.metadata.replace(**{"nr_documents": 0, NO_PROBABILITIES: _NO_PROBABILITIES}),
    )  # fmt: skip


def _check_language(rank_of_mentions: float) -> None:
    if rank_of_mentions < KNOWN:  # not if it is NaN
        raise InputError(
            "the encoder does not know the language of the texts and label names, and may make predictions worse",
            expected=f"labels that a text mentions are more similar to it than {KNOWN:.0%} of all labels, on average",
            received=f"{rank_of_mentions:.0%} (50% is chance)", fix="use an encoder for this language, or leave it out",
        )  # fmt: skip

"""Predict labels with an XR-Transformer: embed texts, score labels with label head and rankers, combine the scores."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, vstack

from xmc_tf.common.errors import InputError
from xmc_tf.common.progress import Progress
from xmc_tf.data import Features, TextFile, Texts, TokenStore, as_features, check_pair, check_prediction_input
from xmc_tf.data.windows import WindowEmbeddings, WindowOptions
from xmc_tf.models.parts import LazyModelFolder
from xmc_tf.models.results import Scored, labels_of_rankers
from xmc_tf.params import PredictionOptions
from xmc_tf.params.choices import MEANS
from xmc_tf.params.pools import LABELS_OF_PART
from xmc_tf.pipeline.embeddings import rows_of_length
from xmc_tf.pipeline.ensembles import blend
from xmc_tf.rankers.ensemble import TreeEnsemble, search_deeper

_TEXTS_AT_ONCE = 16384  # texts whose tokens are in memory


def method_of(model: LazyModelFolder, options: PredictionOptions) -> str:
    """Return the ensemble method in the options, or the model's default if they have none."""
    return options.ensemble_method or model.metadata.ensemble_method


def vectors_of(
    model: LazyModelFolder, texts: Texts, batch_tokens: int, truncate_length: int | None = None, quiet: bool = False
) -> np.ndarray:
    """Return the embeddings of texts as the encoder computes them, without scaling."""
    reading = model.metadata.reading
    if truncate_length is not None:
        reading = dataclasses.replace(reading, max_length=truncate_length)
    out = np.empty((len(texts), model.metadata.embedding_dim), np.float32)
    low = 0
    for windows in windows_of(model, texts, batch_tokens, reading, quiet):
        out[low : low + windows.nr_documents] = windows.of_documents(reading.combine)
        low += windows.nr_documents
    return out


def embedded(model: LazyModelFolder, texts: Texts) -> np.ndarray:
    """Return the embeddings of texts, scaled to length 1."""
    return rows_of_length(1.0, vectors_of(model, texts, PredictionOptions().batch_tokens))


def windows_of(
    model: LazyModelFolder, texts: Texts, batch_tokens: int, reading: WindowOptions, quiet: bool = False
) -> Iterator[WindowEmbeddings]:
    """Yield the embeddings of the texts' windows, one group of texts at a time."""
    from xmc_tf.encoder import encode_windows, groups_of_documents
    from xmc_tf.encoder.tokenizer import TruncationCounter

    truncation = TruncationCounter()
    with Progress("encoding", len(texts), "documents", quiet_s=float("inf") if quiet else 2.0) as progress:
        for begin in range(0, len(texts), _TEXTS_AT_ONCE):
            end = min(begin + _TEXTS_AT_ONCE, len(texts))
            lines = texts.lines(begin, end) if isinstance(texts, TextFile) else texts[begin:end]
            tokens, counts = model.tokenizer.windows(lines, reading, truncation)
            ids = np.concatenate([np.zeros(0, np.int32), *tokens])
            lengths = np.array([len(one) for one in tokens], np.int32)
            store = TokenStore(ids, lengths, {"fingerprint": "", "about": {}}, Path(), counts)
            for low, high in groups_of_documents(store, np.arange(end - begin)):
                yield encode_windows(
                    model.encoder, store, np.arange(low, high), batch_tokens=batch_tokens, progress=progress
                )
    if not model.told_of_truncation:  # log once, not for each request or piece of a table
        truncation.log_summary(reading, "as in training")
        model.told_of_truncation = truncation.truncated > 0 or truncation.folded > 0


def scored(
    model: LazyModelFolder, texts: Texts, X: Features | None, options: PredictionOptions
) -> tuple[Scored, np.ndarray]:
    """Return the best labels of texts with scores, and the encoder's embeddings; ``X`` must be checked, or None."""
    method = method_of(model, options)
    if method == "transformer-only":
        labels, vectors = _by_heads(model, texts, options)
        return Scored(labels), vectors
    if method == "concat-only":
        vectors = vectors_of(model, texts, options.batch_tokens, quiet=options.quiet)
        features = ranker_features(model, texts, X, vectors, options)
        labels = by_rankers(model, features, options)
        return Scored(labels, information=information_of(model, features)), vectors
    given = []

    def blended(size: int) -> csr_matrix:
        more = dataclasses.replace(options, only_topk=size)
        by_heads, vectors = _by_heads(model, texts, more)
        given.append((ranker_features(model, texts, X, vectors, options), vectors))
        found = by_rankers(model, given[0][0], more, size)
        return blend(method, by_heads, found, size, model.new_to_head)

    # If only one of the two has a label among its best, the label scores 0 in the other.
    labels, (features, vectors) = search_deeper(blended, _topk(model, options), LABELS_OF_PART), given[0]
    return Scored(labels, information=information_of(model, features)), vectors


def information_of(model: LazyModelFolder, features: Features) -> np.ndarray | None:
    """Return how much of each text its words say; None if the model does not read words."""
    return model.tfidf.information(features.sparse) if "features" in model.parts else None


def _by_heads(model: LazyModelFolder, texts: Texts, options: PredictionOptions) -> tuple[csr_matrix, np.ndarray]:
    """Return the best labels by the label heads' scores, and the embeddings of the texts."""
    reading = model.metadata.reading
    if reading.max_windows == 1:
        vectors = vectors_of(model, texts, options.batch_tokens, quiet=options.quiet)
        return predict_by_heads(model, WindowEmbeddings.of_single_windows(vectors), options), vectors
    # The heads score the windows of some documents at a time, because there may be too many for memory.
    vectors = np.empty((len(texts), model.metadata.embedding_dim), np.float32)
    parts: list[csr_matrix] = []
    low = 0
    for windows in windows_of(model, texts, options.batch_tokens, reading, options.quiet):
        vectors[low : low + windows.nr_documents] = windows.of_documents(reading.combine)
        low += windows.nr_documents
        parts.append(predict_by_heads(model, windows, options))
    return csr_matrix(vstack(parts, format="csr")), vectors


def ranker_features(
    model: LazyModelFolder, texts: Texts, features: Features | None, vectors: np.ndarray, options: PredictionOptions
) -> Features:
    """Return the rankers' input: TF-IDF of the texts or the caller's features, followed by the embeddings."""
    sparse, dense = (features.sparse, features.dense) if features is not None else (None, None)
    if "features" in model.parts:
        sparse = model.tfidf.transform(texts, threads=options.threads, quiet=options.quiet)
    vectors = rows_of_length(model.metadata.embedding_weight, vectors)
    return as_features((sparse, vectors if dense is None else np.hstack([dense, vectors])))


def by_rankers(model: LazyModelFolder, X: Features, options: PredictionOptions, first: int | None = None) -> csr_matrix:
    """Return the best labels by the rankers' scores; each tree of an ensemble contributes its ``first`` best labels."""
    more = {"first": first} if first is not None and isinstance(model.ranker, TreeEnsemble) else {}
    return model.ranker.predict(
        X, **more, beam_size=options.beam_size, only_topk=options.only_topk, post_processor=options.post_processor,
        threads=options.threads,
    )  # fmt: skip


def predict_by_heads(model: LazyModelFolder, windows: WindowEmbeddings, options: PredictionOptions) -> csr_matrix:
    """Return the best labels found by the label heads' own search.

    A label's score is its maximum over the document's windows. The heads were trained on single windows, and a mean
    would dilute the evidence from one window.
    """
    matcher, chosen = model.matcher, model.output_labels
    found = matcher.predict(
        windows.vectors, only_topk=_topk(model, options), beam_size=options.beam_size or model.metadata.beam_size,
        post_processor=options.post_processor or head_post_processor(model, method_of(model, options)),
        only_labels=None if chosen is None else labels_of_rankers(chosen, int(model.metadata.content["nr_labels"])),
        windows=windows.splits,
    )  # fmt: skip
    return matcher.to_labels(found)


def _topk(model: LazyModelFolder, options: PredictionOptions) -> int:
    return options.only_topk or model.only_topk


def head_post_processor(model: LazyModelFolder, method: str) -> str:
    """Return the heads' post-processor. For averaging, "noop" is replaced, so that scores have the rankers' scale."""
    params = model.metadata.pred_params["matcher_params_chain"]
    name = str((params[-1] if isinstance(params, list) else params)["post_processor"])
    if name != "noop" or method not in MEANS:
        return name
    levels = model.metadata.train_params["matcher_params_chain"]
    loss = (levels[-1] if isinstance(levels, list) else levels)["loss_function"]
    return "sigmoid" if loss == "cross-entropy" else "l3-hinge"


def own_features(model: LazyModelFolder, texts: Texts, X: Any, method: str) -> Features | None:
    """Check the features that the caller passed, and return them; return None if the model needs none."""
    if X is None:
        if model.makes_features or method == "transformer-only":
            return None
        raise InputError(
            "this model was trained on texts and features",
            expected=f"{model.nr_given_features:,} features (-x; in Python: X), as in training", received="only texts",
        )  # fmt: skip
    X = as_features(X)
    if model.makes_features:
        raise InputError(
            "this model computes its features from the texts", expected="only texts", received="texts and features",
            fix="leave out -x (in Python: X)",
        )  # fmt: skip
    check_prediction_input(X, model.nr_given_features)
    check_pair(X, texts, "the features", "the texts")
    return X

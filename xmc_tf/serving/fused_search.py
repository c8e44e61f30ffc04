"""Fusion of rankers' scores and label names as TensorFlow ops, with the same results as ``xmc_tf.fusion``."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xmc_tf.fusion import Fusion
from xmc_tf.fusion.candidate_numbers import NAMELESS, CandidateNumbers, log_odds
from xmc_tf.fusion.centers import FARTHEST
from xmc_tf.fusion.similarity import LOWEST, MOST, Similarity
from xmc_tf.fusion.weighted_numbers import WEIGHTED_NUMBERS
from xmc_tf.label_names import LabelNames
from xmc_tf.label_names.kernels import PARTIAL
from xmc_tf.serving.name_matches import GraphMentions, NameMatches
from xmc_tf.serving.search import Beam, append_new, best_of, first_of, rank


class EvidenceParts(NamedTuple):
    fusion: Fusion
    pool: int  # number of the rankers' labels that are candidates
    post_processor: str | None = None  # of the rankers' scores; None: the model's
    names: LabelNames | None = None  # None: names are no evidence


class FusedSearch(tf.Module):
    """A search for the most probable labels, based on the rankers' best labels and on label names in the texts."""

    def __init__(self, parts: EvidenceParts) -> None:
        super().__init__(name="fusion")
        self.names = None if parts.names is None else NameMatches(parts.names)
        fusion, similarity = parts.fusion, parts.fusion.similarity
        self.centers = None
        with tf.device("CPU:0"):
            documents = fusion.log_documents.astype(np.float32)
            self.log_documents = tf.Variable(documents, trainable=False, name="log_documents")
            if fusion.centers is not None:
                self.centers = tf.Variable(fusion.centers.vectors, trainable=False, name="label_centers")
        self.pool, self._nr_labels, self._names_are_documents = parts.pool, fusion.nr_labels, fusion.names
        self._weights, self._new_weights = fusion.weights, fusion.new_weights
        self._rank_weights, self._short_rank_weights = fusion.rank_weights, fusion.short_rank_weights
        self._typical, self._nr_documents = fusion.typical, max(fusion.nr_documents, 1)
        self._only_names = fusion.nr_documents == 0
        self.similar = NameSimilarity(similarity) if similarity is not None and len(similarity.labels) else None

    def __call__(
        self, text: tf.Tensor | None, beam: Beam, most: int, documents: tf.Tensor | None = None,
        information: tf.Tensor | None = None, certain: bool = False,
    ) -> Beam:  # fmt: skip
        """Return the most probable labels.

        Args:
            text: the texts; None: names cannot be evidence.
            beam: the rankers' best labels.
            most: the number of labels.
            documents: embeddings of unit norm; None: there is no encoder.
            information: how much of each text is known (float64); None: enough.
            certain: whether a text without any known word has no labels, unless it mentions them.
        """
        if self._typical == 0:
            information = None
        elif certain and information is not None and documents is None:
            some = (information > 0)[:, None]
            beam = Beam(tf.where(some, beam.nodes, -1), tf.where(some, beam.scores, 0.0))
        similar = None if documents is None else self.similar
        with tf.device("CPU:0"):
            count = tf.shape(beam.nodes, tf.int64)[0]
            pooled = Beam(beam.nodes[:, : self.pool], beam.scores[:, : self.pool])
            there = tf.where((pooled.nodes >= 0) & (self._known(pooled.nodes) | self._names_are_documents))
            ranked = there[:, 0] * self._nr_labels + tf.cast(tf.gather_nd(pooled.nodes, there), tf.int64)
            scores = tf.cast(tf.gather_nd(pooled.scores, there), tf.float64)
            mentions = None if text is None or self.names is None else self.names(text)
            alone = tf.zeros([0], tf.int64) if mentions is None else self._candidates(mentions)
            alike = tf.zeros([0], tf.int64)
            if similar is not None:
                row, label = similar.candidates(documents)
                alike = row * self._nr_labels + tf.cast(label, tf.int64)
            keys = tf.unique(tf.sort(tf.concat([ranked, alone, alike], axis=0))).y
            score = tf.scatter_nd(tf.searchsorted(keys, ranked)[:, None], scores, [tf.size(keys)])
            rows, labels = keys // self._nr_labels, tf.cast(keys % self._nr_labels, tf.int32)
            mention = _aligned(mentions, keys)
            match_precision = tf.cast(mention.precision, tf.float64)
            similarity = tf.zeros_like(score) if similar is None else similar.of_pairs(documents, rows, labels)
            scarcity = tf.zeros([count], tf.float64) if information is None else self._scarcity(information)
            candidates = CandidateNumbers(
                TensorOperations(rows, count), probability=score, match_precision=match_precision, mention=mention,
                is_mentioned=mention.rarity > 0, name_similarity=similarity,
                center_cosine=self._closeness(documents, rows, labels),
                log_documents=tf.cast(tf.gather(self.log_documents, labels), tf.float64),
                scarcity=tf.gather(scarcity, rows),
            )  # fmt: skip
            raw = self._raw(candidates)
            probability = tf.cast(1.0 / (1.0 + tf.exp(-raw)), tf.float32)
            if documents is None and self._typical > 0:
                frequency = tf.cast(tf.math.expm1(candidates.log_documents) / self._nr_documents, tf.float32)
                probability = tf.where(candidates.unknown, tf.minimum(probability, frequency), probability)
                if self._only_names:
                    probability = tf.where(candidates.nameless, NAMELESS * probability, probability)
            found = self._calibrated(_best(rows, labels, probability, count, most), scarcity[:, None])
            if most <= self.pool:
                return found
            last = beam.scores[:, self.pool - 1 : self.pool]
            shares = tf.math.divide_no_nan(beam.scores[:, self.pool :], last)
            return first_of(append_new(found, Beam(beam.nodes[:, self.pool :], shares), shares=True), most)

    def _scarcity(self, information: tf.Tensor) -> tf.Tensor:
        """Return how little of each text is known; see ``xmc_tf.fusion.short_texts``."""
        return tf.clip_by_value(
            1.0 - information / self._typical, tf.constant(0, tf.float64), tf.constant(1, tf.float64)
        )

    def _known(self, nodes: tf.Tensor) -> tf.Tensor:
        return tf.gather(self.log_documents, tf.maximum(nodes, 0)) > 0

    def _candidates(self, mentions: GraphMentions) -> tf.Tensor:
        """Return the keys of the mentions that make their labels candidates, as in ``Fusion._candidates``."""
        labels = tf.cast(mentions.keys % self._nr_labels, tf.int32)
        return tf.boolean_mask(mentions.keys, (mentions.grade != PARTIAL) | ~self._known(labels))

    def _closeness(self, documents: tf.Tensor | None, rows: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Return the cosine similarity of each candidate's document and label center; see ``xmc_tf.fusion.centers``."""
        if self.centers is None or documents is None:
            return tf.zeros(tf.shape(labels), tf.float64)
        products = tf.gather(documents, rows) * tf.gather(self.centers, labels)
        cosines = tf.cast(tf.reduce_sum(products, axis=1), tf.float64)
        return tf.where(tf.gather(self.log_documents, labels) > 0, cosines, tf.constant(FARTHEST, tf.float64))

    def _raw(self, candidates: CandidateNumbers) -> tf.Tensor:
        """Return the weighted sum of each candidate's features."""
        columns = [number.of(candidates) for number in WEIGHTED_NUMBERS]
        known, new = (
            tf.add_n([column * weight for column, weight in zip(columns, weights, strict=True)])
            for weights in (self._weights, self._new_weights)
        )
        return tf.where(candidates.log_documents > 0, known, new)

    def _calibrated(self, best: Beam, scarcity: tf.Tensor) -> Beam:
        """Correct the probabilities by the rank of each label; see ``xmc_tf.fusion.rank_calibration``."""
        raw = log_odds(tf.cast(best.scores, tf.float64), TensorOperations)
        known = tf.cast(self._known(best.nodes), tf.float64)
        ranks = tf.math.log1p(tf.cumsum(known, axis=1, exclusive=True))
        columns = (tf.ones_like(raw), raw, tf.maximum(raw, -1.0), tf.maximum(raw, 1.0), ranks)
        corrected, of_short = (
            tf.add_n([column * weight for column, weight in zip(columns, weights, strict=True)])
            for weights in (self._rank_weights, self._short_rank_weights)
        )
        raw = corrected + scarcity * (tf.where(scarcity < 1, of_short, raw) - corrected)
        probability = tf.cast(1.0 / (1.0 + tf.exp(-raw)), tf.float32)
        return Beam(best.nodes, tf.where(best.nodes >= 0, probability, 0.0))


class TensorOperations:
    """The operations of :class:`xmc_tf.fusion.candidate_numbers.CandidateOperations` in TensorFlow."""

    log = staticmethod(tf.math.log)

    def __init__(self, rows: tf.Tensor, nr_texts: tf.Tensor) -> None:
        self._rows, self._nr_texts = rows, nr_texts

    def number(self, condition: tf.Tensor) -> tf.Tensor:
        return tf.cast(condition, tf.float64)

    def only(self, condition: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        return tf.where(condition, x, tf.zeros_like(x))

    def maximum(self, x: tf.Tensor, y: float) -> tf.Tensor:
        return tf.maximum(x, tf.constant(y, tf.float64))

    @staticmethod
    def clip(x: tf.Tensor, least: float, most: float) -> tf.Tensor:
        return tf.clip_by_value(x, tf.constant(least, tf.float64), tf.constant(most, tf.float64))

    def best_of_text(self, x: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.math.unsorted_segment_max(x, self._rows, self._nr_texts), self._rows)

    def sum_of_text(self, x: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.math.unsorted_segment_sum(x, self._rows, self._nr_texts), self._rows)


class NameSimilarity(tf.Module):
    """The similarity of documents to the names of labels."""

    def __init__(self, similarity: Similarity) -> None:
        super().__init__(name="name_similarity")
        with tf.device("CPU:0"):
            self.labels = tf.Variable(similarity.labels.astype(np.int32), trainable=False, name="similar_labels")
            self.vectors = tf.Variable(similarity.vectors, trainable=False, name="name_embeddings")
        self._most = min(MOST, len(similarity.labels))
        self._least, self._scale = similarity.least, similarity.scale

    def candidates(self, documents: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return pairs of a document (int64) and a similar label (int32), given document embeddings of unit norm."""
        best = tf.math.top_k(tf.matmul(documents, self.vectors, transpose_b=True), k=self._most)
        there = tf.where(best.values >= self._least)
        return there[:, 0], tf.gather(self.labels, tf.gather_nd(best.indices, there))

    def of_pairs(self, documents: tf.Tensor, rows: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Return the float64 similarity of each (document, label) pair; 0 for labels without an embedding."""
        known = self.labels.value()
        place = tf.minimum(tf.searchsorted(known, labels), tf.size(known) - 1)
        same = tf.gather(known, place) == labels
        some = tf.where(same)
        left, right = tf.gather(documents, rows[same]), tf.gather(self.vectors, place[same])
        cosine = tf.cast(tf.reduce_sum(left * right, axis=1), tf.float64)
        value = tf.maximum((cosine - self._least) / self._scale, tf.constant(LOWEST, tf.float64))
        return tf.scatter_nd(some, value, tf.shape(labels, tf.int64))


def _aligned(mentions: GraphMentions | None, keys: tf.Tensor) -> GraphMentions:
    """Return the mention of each candidate, with zeros for candidates that are not mentioned."""
    if mentions is None:
        return GraphMentions(keys, *[tf.zeros_like(keys, tf.float32)] * (len(GraphMentions._fields) - 1))
    place = tf.searchsorted(mentions.keys, keys)
    same = tf.gather(tf.pad(mentions.keys, [[0, 1]], constant_values=-1), place) == keys
    columns = (tf.gather(tf.pad(column, [[0, 1]]), place) for column in mentions[1:])
    return GraphMentions(keys, *(tf.where(same, column, tf.zeros_like(column)) for column in columns))


def _best(rows: tf.Tensor, labels: tf.Tensor, probability: tf.Tensor, count: tf.Tensor, most: int) -> Beam:
    """Return the most probable candidates of each document; the candidates must be sorted by document."""
    starts = tf.searchsorted(rows, tf.range(count))
    place = tf.range(tf.size(rows, out_type=tf.int64)) - tf.cast(tf.gather(starts, rows), tf.int64)
    width = tf.maximum(tf.reduce_max(tf.concat([place, [0]], axis=0)) + 1, most)
    shape = tf.stack([count, width])
    at = tf.stack([rows, place], axis=1)
    nodes = tf.tensor_scatter_nd_update(tf.fill(shape, -1), at, labels)
    scores = tf.scatter_nd(at, probability, shape)
    return best_of(rank(scores, nodes, nodes >= 0), most)

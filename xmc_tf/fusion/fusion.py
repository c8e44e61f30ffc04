"""Compute one probability per label from the rankers' scores and the label names in the text."""

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json
from xmc_tf.fusion.candidate_numbers import NAMELESS, candidate_numbers
from xmc_tf.fusion.candidates import LabelCandidates, join_candidates
from xmc_tf.fusion.centers import FARTHEST, HeldOutCenters, LabelCenters
from xmc_tf.fusion.held_out import Folds, HeldOutCandidates, is_right, sigmoid
from xmc_tf.fusion.rank_calibration import RANK_NAMES, SAME, best_first, calibrated, rank_in_document
from xmc_tf.fusion.short_texts import ShortTexts, scarcity, typical_information
from xmc_tf.fusion.similarity import EmbeddedNames, Similarity
from xmc_tf.fusion.thresholds import PrecisionCurve, calibration_error, measure_curve
from xmc_tf.fusion.weighted_numbers import NAMES, first_weights, weighted_numbers
from xmc_tf.label_names import Mentions
from xmc_tf.store.models import FUSION_HEADER

_DOCUMENTS = "documents.npy"
_WEIGHTS, _RANK_WEIGHTS = ("weights", "new_weights"), ("rank_weights", "short_rank_weights")
_VERSION = 4
_BEST = 5  # best labels of a document, whose calibration is measured
ROWS = 20_000  # documents at a time, to bound memory
_FIX = "copy the model again"


@dataclass(frozen=True, eq=False)
class Fusion:
    """A small model that combines the rankers' scores and the names in a text into one calibrated probability."""

    weights: np.ndarray  # float64, one for each of weighted_numbers.NAMES
    new_weights: np.ndarray  # the same, for labels without training documents
    log_documents: np.ndarray  # float32 [labels]: log(1 + number of training documents)
    curve: PrecisionCurve
    nr_held_out: int = 0
    similarity: Similarity | None = None  # None: the model has no encoder
    rank_weights: np.ndarray = field(default_factory=SAME.copy)  # float64, one for each of ranks.RANK_NAMES
    short_rank_weights: np.ndarray = field(default_factory=SAME.copy)  # of texts of which nearly nothing is known
    names: bool = True  # whether names were evidence and documents in training; else scores of new labels mean nothing
    centers: LabelCenters | None = None  # None: the model has no encoder
    error: float = math.nan  # expected calibration error of the best held-out labels; NaN: not measured
    typical: float = 0.0  # information of a text of which enough is known; 0: it is not measured
    nr_documents: int = 0  # training documents

    @property
    def nr_labels(self) -> int:
        return len(self.log_documents)

    @classmethod
    def learn(
        cls,
        scores: csr_matrix,
        mentions: Mentions | None,
        held_out: spmatrix,  # the labels of the documents of ``scores``
        Y: spmatrix,  # the labels of all training documents
        hidden: Sequence[np.ndarray] = (),  # for each fold, bool [labels]: labels the rankers knew only by name
        embedded: EmbeddedNames | None = None,
        fold_sizes: Sequence[int] = (),  # given if the held-out documents are among those of Y
        centers: HeldOutCenters | None = None,
        information: np.ndarray | None = None,  # of the held-out documents: how much of each text is known
        short: ShortTexts | None = None,  # some of the held-out documents, cut to a few words
    ) -> Self:
        """Learn from documents that were held out when the rankers were trained."""
        documents = np.bincount(csr_matrix(Y).indices, minlength=Y.shape[1])
        truth, named = csr_matrix(held_out), mentions is not None
        learned = cls(
            first_weights(), first_weights(), np.log1p(documents).astype(np.float32),
            PrecisionCurve([], [], [], [], []), truth.shape[0], names=named,
            similarity=None if embedded is None else embedded.similarity,
            centers=None if centers is None else centers.every,
            typical=0.0 if information is None else typical_information(information), nr_documents=Y.shape[0],
        )  # fmt: skip
        folds = Folds(truth, documents, hidden, fold_sizes)
        has_documents = None if mentions is None else folds.documents_elsewhere(mentions) > 0
        vectors = None if embedded is None else embedded.documents
        found = learned._candidates(scores, mentions, learned.similarity, vectors, has_documents, information)
        elsewhere, is_hidden = folds.documents_elsewhere(found), folds.hidden_of(found)
        if not (named and folds.open_vocabulary):
            # Labels of the fold alone are in the vocabulary because they are right there. New documents have none.
            there = (elsewhere > 0) | is_hidden
            found, elsewhere, is_hidden = found.only(there), elsewhere[there], is_hidden[there]
        if centers is not None:
            closeness = centers.elsewhere.of_pairs(centers.documents, found.rows, found.labels)
            found = found._replace(closeness=np.where(elsewhere > 0, closeness, FARTHEST))
        held = HeldOutCandidates(
            found.rows, weighted_numbers(found, np.log1p(elsewhere)), is_right(found, truth),
            known=elsewhere > 0, hidden=is_hidden,
            frequent=elsewhere >= documents[documents > 0].min(initial=len(truth.indices) + 1), scarcity=found.scarcity,
        )  # fmt: skip
        encoded = embedded is not None and embedded.knows_language
        of_short = None if short is None else learned._of_short(short, truth, folds)
        weights = held.fit(short=of_short, encoded=encoded)
        best, ranks = held.cross_fitted(weights, encoded=encoded)
        shown = ~is_hidden
        top = shown & (ranks < _BEST)
        return dataclasses.replace(
            learned, weights=weights.known, new_weights=weights.new,
            rank_weights=weights.ranks, short_rank_weights=weights.short_ranks,
            curve=measure_curve(best[shown], held.right[shown], found.rows[shown], truth.nnz - folds.nr_hidden),
            error=calibration_error(best[top], held.right[top]),
            similarity=None if embedded is None else embedded.of_kept(),
        )  # fmt: skip

    @classmethod
    def of_names(cls, nr_labels: int, information: np.ndarray, similarity: Similarity | None = None) -> Self:
        """Return a fusion for labels of which only the names are known."""
        weights = first_weights(similarity is not None)
        return cls(
            weights, weights, np.zeros(nr_labels, np.float32), PrecisionCurve([], [], [], [], []),
            similarity=similarity, typical=typical_information(information),
        )  # fmt: skip

    def _of_short(self, short: ShortTexts, truth: csr_matrix, folds: Folds) -> HeldOutCandidates:
        """Return the candidates of cut documents, as new documents have them; of labels with documents elsewhere."""
        found = self._candidates(short.scores, short.mentions, information=short.information)
        if self.centers is not None and short.vectors is not None:
            found = found._replace(closeness=self.centers.of_pairs(short.vectors, found.rows, found.labels))
        found = found._replace(rows=short.documents[found.rows])
        elsewhere = folds.documents_elsewhere(found)
        numbers, known = weighted_numbers(found, np.log1p(elsewhere)), elsewhere > 0
        right, hidden = is_right(found, truth), folds.hidden_of(found)
        return HeldOutCandidates(found.rows, numbers, right, known, known, hidden, found.scarcity)

    def with_added(self, count: int, vectors: np.ndarray | None = None) -> Self:
        """Return a copy with ``count`` new labels, which have no training documents."""
        similarity, first = self.similarity, len(self.log_documents)
        if similarity is not None and vectors is not None:
            similarity = similarity.with_added(np.arange(first, first + count, dtype=np.int32), vectors)
        return dataclasses.replace(
            self, log_documents=np.pad(self.log_documents, (0, count)), similarity=similarity,
            centers=None if self.centers is None else self.centers.with_added(count),
        )  # fmt: skip

    def combine(
        self,
        scores: csr_matrix,
        mentions: Mentions | None,
        only_topk: int,
        threshold: float = 0.0,
        vectors: np.ndarray | None = None,
        allowed: np.ndarray | None = None,  # labels that may be similar to documents; None: all
        information: np.ndarray | None = None,  # how much of each text is known; None: enough
    ) -> csr_matrix:
        """Return the probabilities of the best labels: documents × labels, each row in descending order."""
        similarity = self.similarity
        if similarity is not None and allowed is not None:
            some = np.isin(similarity.labels, allowed)
            similarity = similarity.of_labels(similarity.labels[some], similarity.vectors[some])
        count = scores.shape[0]
        parts = []
        for begin in range(0, count, ROWS):
            whole = count <= ROWS
            rows = slice(begin, begin + ROWS)
            some = scores if whole else scores[rows]
            named = mentions if whole or mentions is None else mentions.of_rows(begin, begin + ROWS)
            embedded = None if vectors is None else vectors[rows]
            found = self._candidates(
                some, named, similarity, embedded, information=None if information is None else information[rows]
            )
            parts.append(self._best(found, embedded, some.shape[0], only_topk, threshold))
        indptr = np.concatenate([[0], np.cumsum(np.concatenate([[0], *(part[2] for part in parts)])[1:])])
        data = np.concatenate([np.zeros(0, np.float32), *(part[0] for part in parts)])
        labels = np.concatenate([np.zeros(0, np.int32), *(part[1] for part in parts)])
        result = csr_matrix((count, len(self.log_documents)), dtype=np.float32)
        result.data, result.indices, result.indptr = data, labels, indptr.astype(np.int32)
        return result

    def _candidates(
        self,
        scores: csr_matrix,
        mentions: Mentions | None,
        similarity: Similarity | None = None,
        vectors: np.ndarray | None = None,
        has_documents: np.ndarray | None = None,
        information: np.ndarray | None = None,
    ) -> LabelCandidates:
        found = self._joined(scores, mentions, similarity, vectors, has_documents)
        if information is None:
            return found
        return found._replace(scarcity=scarcity(information, self.typical)[found.rows])

    def _joined(
        self,
        scores: csr_matrix,
        mentions: Mentions | None,
        similarity: Similarity | None,
        vectors: np.ndarray | None,
        has_documents: np.ndarray | None,
    ) -> LabelCandidates:
        known, needs_score = self.log_documents > 0, None
        if mentions is not None:
            # If a label has documents, its rankers already use a partly matching name.
            needs_score = ~mentions.full & (known[mentions.labels] if has_documents is None else has_documents)
        ranked = np.ones_like(known) if self.names else known
        if similarity is None or vectors is None or not len(similarity.labels):
            return join_candidates(scores, mentions, ranked, needs_score=needs_score)
        alike = similarity.candidates(vectors, len(known))
        found = join_candidates(scores, mentions, ranked, alike, needs_score)
        return found._replace(similarity=similarity.of_pairs(vectors, found.rows, found.labels))

    def _best(
        self, found: LabelCandidates, vectors: np.ndarray | None, nr_rows: int, only_topk: int, threshold: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the probabilities and labels of the best candidates, and their number in each document."""
        log_documents = self.log_documents[found.labels]
        known = log_documents > 0
        if self.centers is not None and vectors is not None:
            closeness = self.centers.of_pairs(vectors, found.rows, found.labels)
            closeness[~known] = FARTHEST
            found = found._replace(closeness=closeness)
        features = weighted_numbers(found, log_documents.astype(np.float64))
        raw = features @ self.weights
        raw[~known] = features[~known] @ self.new_weights
        probability = sigmoid(raw)
        if vectors is None and self.typical > 0:
            # Of a text without any known word, it is only known how frequent labels are.
            candidates = candidate_numbers(found, log_documents)
            frequency = np.expm1(log_documents[candidates.unknown]) / max(self.nr_documents, 1)
            probability[candidates.unknown] = np.minimum(probability[candidates.unknown], frequency)
            if not self.nr_documents:
                probability[candidates.nameless] *= NAMELESS
        order = best_first(found.rows, probability)
        ranks = rank_in_document(found.rows, order, known)
        rows = found.rows[order]
        starts = np.searchsorted(rows, np.arange(nr_rows))
        best = calibrated(
            probability[order], ranks[order], self.rank_weights, self.short_rank_weights, found.scarcity[order]
        )
        keep = (np.arange(len(rows)) - starts[rows] < only_topk) & (best >= threshold)
        counts = np.bincount(rows[keep], minlength=nr_rows)
        return best[keep], found.labels[order[keep]].astype(np.int32), counts

    def save(self, folder: str | Path) -> None:
        """Write a folder, which must not exist yet."""
        folder = Path(folder)
        folder.mkdir(parents=True)
        np.save(folder / _DOCUMENTS, self.log_documents)
        if self.similarity is not None:
            self.similarity.save(folder)
        if self.centers is not None:
            self.centers.save(folder)
        content = {
            "version": _VERSION,
            **{name: dict(zip(NAMES, getattr(self, name).tolist(), strict=True)) for name in _WEIGHTS},
            **{name: dict(zip(RANK_NAMES, getattr(self, name).tolist(), strict=True)) for name in _RANK_WEIGHTS},
            "nr_held_out": self.nr_held_out,
            "names": self.names,
            "typical_information": self.typical,
            "nr_documents": self.nr_documents,
            "calibration_error": None if math.isnan(self.error) else round(self.error, 5),
            "curve": self.curve._asdict(),
        }
        (folder / FUSION_HEADER).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load a folder written by `save`."""
        path = Path(folder) / FUSION_HEADER
        content = read_json(path, expected="the weights of a fusion", fix=_FIX)
        stored = [content.get(name, {}) for name in _WEIGHTS]
        if content.get("version") != _VERSION or any({*weights} != {*NAMES} for weights in stored):
            raise InputError(f"{path} was written by another version of xmc_tf", fix="train the model again")
        try:
            documents = np.load(path.parent / _DOCUMENTS, allow_pickle=False)
            ranks, short_ranks = (
                np.array([content[weights][name] for name in RANK_NAMES], np.float64) for weights in _RANK_WEIGHTS
            )
            curve, count = PrecisionCurve(**content["curve"]), int(content["nr_held_out"])
            known, new = (np.array([weights[name] for name in NAMES], np.float64) for weights in stored)
            similarity, centers = Similarity.load(path.parent), LabelCenters.load(path.parent, len(documents))
            measured = content["calibration_error"]
            return cls(
                known, new, documents, curve, count, similarity, ranks, short_ranks, bool(content["names"]), centers,
                math.nan if measured is None else float(measured), float(content["typical_information"]),
                int(content["nr_documents"]),
            )  # fmt: skip
        except (EOFError, OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path.parent} cannot be read: {error}", fix=_FIX) from None

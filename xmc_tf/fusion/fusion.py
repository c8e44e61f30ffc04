"""One probability for each label, from the scores of rankers and the names in the text."""

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import read_json
from xmc_tf.common.folders.model_parts import FUSION_HEADER
from xmc_tf.fusion.candidates import LabelCandidates, join_candidates
from xmc_tf.fusion.centers import FARTHEST, HeldOutCenters, LabelCenters
from xmc_tf.fusion.embedded_names import EmbeddedNames
from xmc_tf.fusion.features import DEFAULT_WEIGHTS, LATER, NAMES, candidate_features, features_if_new
from xmc_tf.fusion.logistic import fit_logistic
from xmc_tf.fusion.ranks import RANK_NAMES, SAME, calibrated, learn_rank_weights, rank_in_document
from xmc_tf.fusion.similarity import Similarity
from xmc_tf.fusion.thresholds import PrecisionCurve, calibration_error, measure_curve

_DOCUMENTS = "documents.npy"
_WEIGHTS = ("weights", "new_weights")
_VERSION = 2
_BEST = 5  # labels of a document whose calibration is measured
ROWS = 20_000  # documents at a time, to bound memory
_FIX = "copy the model again"


@dataclass(frozen=True, eq=False)
class Fusion:
    """A small model that combines the scores of rankers and the names in a text into one calibrated probability.

    Args:
        weights: float64, one for each of ``features.NAMES``.
        new_weights: the same, for labels without training documents.
        log_documents: float32 [labels]: the logarithm of 1 + the number of training documents of each label.
        curve: precision and recall by threshold, on held-out documents.
        nr_held_out: number of held-out documents that it was learned from.
        similarity: embeddings of the names of labels without documents; None: the model has no encoder.
        rank_weights: float64, one for each of ``ranks.RANK_NAMES``.
        names: whether names were evidence when it was learned.
        centers: the centers of labels in the space of the encoder; None: the model has no encoder.
        error: expected calibration error on the held-out documents, of the best labels of each; NaN: not measured.
    """

    weights: np.ndarray
    new_weights: np.ndarray
    log_documents: np.ndarray
    curve: PrecisionCurve
    nr_held_out: int = 0
    similarity: Similarity | None = None
    rank_weights: np.ndarray = field(default_factory=SAME.copy)
    names: bool = True
    centers: LabelCenters | None = None
    error: float = math.nan

    @property
    def nr_labels(self) -> int:
        """Number of labels."""
        return len(self.log_documents)

    @classmethod
    def learn(
        cls,
        scores: csr_matrix,
        evidence: csr_matrix | None,
        held_out: spmatrix,
        Y: spmatrix,
        if_new: csr_matrix | None = None,
        embedded: EmbeddedNames | None = None,
        fold_sizes: Sequence[int] = (),
        centers: HeldOutCenters | None = None,
    ) -> Self:
        """Learn from documents that the rankers were not trained on.

        Args:
            scores: documents × labels: the rankers' best labels, with scores from 0 to 1.
            evidence: documents × labels: what names in the documents are worth; None: names are no evidence.
            held_out: the labels of these documents.
            Y: the labels of all training documents, whose numbers are features.
            if_new: documents × labels: what the names would be worth if their label had no training documents.
            embedded: embeddings of names and of these documents; None: there is no encoder.
            fold_sizes: number of documents of each fold, if the held-out documents are among those of ``Y``: the
                rankers that scored a fold were trained without its documents.
            centers: centers of the labels in the space of the encoder; None: there is no encoder.
        """
        documents = np.bincount(csr_matrix(Y).indices, minlength=Y.shape[1])
        log_documents = np.log1p(documents).astype(np.float32)
        truth = csr_matrix(held_out)
        learned = cls(
            DEFAULT_WEIGHTS, DEFAULT_WEIGHTS, log_documents, PrecisionCurve([], [], []), truth.shape[0],
            names=evidence is not None,
        )  # fmt: skip
        # Labels without documents are in none of these either, which says nothing about new texts.
        found = learned._candidates(scores, evidence).of_labels(documents > 0)
        if centers is not None:
            learned = dataclasses.replace(learned, centers=centers.every)
            found = found._replace(closeness=centers.elsewhere.of_pairs(centers.documents, found.rows, found.labels))
        right = _is_right(found, truth)
        features = candidate_features(found, log_documents.astype(np.float64))
        elsewhere = _documents_elsewhere(found, truth, documents, fold_sizes)
        features[:, NAMES.index("documents")] = np.log1p(elsewhere)
        weights = _fitted(features, right)
        new_weights = DEFAULT_WEIGHTS
        if if_new is not None:
            similarity = None if embedded is None else embedded.of_known()
            vectors = None if embedded is None else embedded.documents
            named = learned._candidates(scores, if_new, similarity, vectors)
            some = (named.worth > 0) | (named.similarity != 0)
            if embedded is not None:  # the others have no embedding
                some &= np.isin(named.labels, embedded.labels)
            new_weights = _fitted(features_if_new(named)[some], _is_right(named, truth)[some])
            if embedded is not None and similarity is not None:
                learned = dataclasses.replace(
                    learned, similarity=similarity.of_labels(embedded.new_labels, embedded.new_vectors)
                )
        learned = dataclasses.replace(learned, weights=weights, new_weights=new_weights)
        # A label whose only documents are in the fold would not be a candidate in a new document. Here it is one only
        # because it is right somewhere in the fold, so it says nothing about how often candidates are right.
        found, features, right = found.only(elsewhere > 0), features[elsewhere > 0], right[elsewhere > 0]
        probability = _sigmoid(features @ weights)
        ranks = rank_in_document(found.rows, found.labels, probability)
        rank_weights = learn_rank_weights(probability, ranks, right)
        best = calibrated(probability, ranks, rank_weights)
        curve = measure_curve(best, right, found.rows, truth.nnz)
        error = calibration_error(best[ranks < _BEST], right[ranks < _BEST])
        return dataclasses.replace(learned, curve=curve, rank_weights=rank_weights, error=error)

    def with_added(self, count: int, vectors: np.ndarray | None = None) -> Self:
        """Return the fusion with more labels, which have no training documents.

        Args:
            count: number of labels to add.
            vectors: embeddings of their names, of length 1, if the model has an encoder.
        """
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
        evidence: csr_matrix | None,
        only_topk: int,
        threshold: float = 0.0,
        vectors: np.ndarray | None = None,
        allowed: np.ndarray | None = None,
    ) -> csr_matrix:
        """Return the probabilities of the best labels: documents × labels, descending within a row.

        Args:
            scores: documents × labels: the rankers' best labels. Labels that were added later may be missing.
            evidence: documents × labels: what names in the documents are worth.
            only_topk: maximum number of labels per document.
            threshold: labels with a lower probability are left out.
            vectors: embeddings of the documents, of length 1; None: not known.
            allowed: labels that may be similar to documents; None: all.
        """
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
            named = evidence if whole or evidence is None else evidence[rows]
            embedded = None if vectors is None else vectors[rows]
            found = self._with_closeness(self._candidates(some, named, similarity, embedded), embedded)
            parts.append(self._best(found, some.shape[0], only_topk, threshold))
        indptr = np.concatenate([[0], np.cumsum(np.concatenate([[0], *(part[2] for part in parts)])[1:])])
        data = np.concatenate([np.zeros(0, np.float32), *(part[0] for part in parts)])
        labels = np.concatenate([np.zeros(0, np.int32), *(part[1] for part in parts)])
        result = csr_matrix((count, len(self.log_documents)), dtype=np.float32)
        result.data, result.indices, result.indptr = data, labels, indptr.astype(np.int32)
        return result

    def _candidates(
        self,
        scores: csr_matrix,
        evidence: csr_matrix | None,
        similarity: Similarity | None = None,
        vectors: np.ndarray | None = None,
    ) -> LabelCandidates:
        known = self.log_documents > 0
        if similarity is None or vectors is None or not len(similarity.labels):
            return join_candidates(scores, evidence, known)
        found = join_candidates(scores, evidence, known, similarity.candidates(vectors, len(known)))
        return found._replace(similarity=similarity.of_pairs(vectors, found.rows, found.labels))

    def _with_closeness(self, found: LabelCandidates, vectors: np.ndarray | None) -> LabelCandidates:
        """Return candidates with the cosine of document and center; labels without documents are far away."""
        if self.centers is None or vectors is None:
            return found
        closeness = self.centers.of_pairs(vectors, found.rows, found.labels)
        closeness[self.log_documents[found.labels] == 0] = FARTHEST
        return found._replace(closeness=closeness)

    def _best(
        self, found: LabelCandidates, nr_rows: int, only_topk: int, threshold: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return probabilities and labels of the best labels of all documents, and their number in each."""
        probability = self._probability(found)
        order = np.lexsort((found.labels, -probability, found.rows))
        rows = found.rows[order]
        starts = np.searchsorted(rows, np.arange(nr_rows))
        # Labels without documents have no rank: labels that are added must not change the probabilities of others.
        known = self.log_documents[found.labels[order]] > 0
        better = np.concatenate([[0], np.cumsum(known)])
        best = calibrated(probability[order], better[:-1] - better[starts[rows]], self.rank_weights)
        keep = (np.arange(len(rows)) - starts[rows] < only_topk) & (best >= threshold)
        counts = np.bincount(rows[keep], minlength=nr_rows)
        return best[keep], found.labels[order[keep]].astype(np.int32), counts

    def _probability(self, found: LabelCandidates) -> np.ndarray:
        features = candidate_features(found, self.log_documents.astype(np.float64))
        raw = features @ self.weights
        new = self.log_documents[found.labels] == 0
        raw[new] = features[new] @ self.new_weights
        return _sigmoid(raw)

    def save(self, folder: str | Path) -> None:
        """Write a folder.

        Args:
            folder: folder of the fusion, which must not exist.
        """
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
            "rank_weights": dict(zip(RANK_NAMES, self.rank_weights.tolist(), strict=True)),
            "nr_held_out": self.nr_held_out,
            "names": self.names,
            **({} if math.isnan(self.error) else {"calibration_error": round(self.error, 5)}),
            "curve": self.curve._asdict(),
        }
        (folder / FUSION_HEADER).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load a folder that `save` wrote.

        Args:
            folder: folder of the fusion.
        """
        path = Path(folder) / FUSION_HEADER
        content = read_json(path, expected="the weights of a fusion", fix=_FIX)
        if content.get("version") != _VERSION or any(
            {*content.get(name, ()), *LATER} != set(NAMES) for name in _WEIGHTS
        ):
            raise InputError(
                f"{path} is of another version of xmc_tf",
                expected=f"version {_VERSION}, with weights of {len(NAMES)} features",
                received=f"version {content.get('version')!r}",
                fix="train the model again, or load it with the version that wrote it",
            )
        try:
            documents = np.load(path.parent / _DOCUMENTS, allow_pickle=False)
            known, new = (np.array([content[one].get(name, 0.0) for name in NAMES], np.float64) for one in _WEIGHTS)
            ranks = np.array([content["rank_weights"][name] for name in RANK_NAMES], np.float64)
            curve, count = PrecisionCurve(**content["curve"]), int(content["nr_held_out"])
            named = bool(content.get("names", True))  # older models have names always
            similarity, centers = Similarity.load(path.parent), LabelCenters.load(path.parent, len(documents))
            measured = float(content.get("calibration_error", math.nan))
            return cls(known, new, documents, curve, count, similarity, ranks, named, centers, measured)
        except (EOFError, OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path.parent} cannot be read: {error}", fix=_FIX) from None


def _fitted(features: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return weights, with not a digit more than is the same with every version of a mathematical library."""
    return np.round(fit_logistic(features, right, DEFAULT_WEIGHTS), 6)


def _is_right(found: LabelCandidates, truth: csr_matrix) -> np.ndarray:
    truth = truth.sorted_indices()
    keys = found.rows * truth.shape[1] + found.labels
    positives = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr)) * truth.shape[1] + truth.indices
    place = np.minimum(np.searchsorted(positives, keys), max(len(positives) - 1, 0))
    return positives[place] == keys if len(positives) else np.zeros(len(keys), bool)


def _sigmoid(raw: np.ndarray) -> np.ndarray:
    return (1.0 / (1.0 + np.exp(-raw))).astype(np.float32)


def _documents_elsewhere(
    found: LabelCandidates, truth: csr_matrix, documents: np.ndarray, fold_sizes: Sequence[int]
) -> np.ndarray:
    """Return for each candidate the number of documents of its label that are not in its fold."""
    counts = documents[found.labels]
    ends = np.cumsum([0, *fold_sizes])
    for first, last in pairwise(ends):
        own = np.bincount(truth[first:last].indices, minlength=len(documents))
        some = slice(*np.searchsorted(found.rows, [first, last]))
        counts[some] -= own[found.labels[some]]
    return counts

"""One probability for each label, from the scores of rankers and the names in the text."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import read_json
from xmc_tf.fusion.candidates import Candidates, join_candidates
from xmc_tf.fusion.features import DEFAULT_WEIGHTS, NAMES, candidate_features
from xmc_tf.fusion.logistic import fit_logistic
from xmc_tf.fusion.thresholds import Curve, measure_curve

FUSION_FILES = r"fusion\.json|documents\.npy"
_HEADER, _DOCUMENTS = "fusion.json", "documents.npy"
_VERSION = 1
_ROWS = 20_000  # documents at a time, to bound memory
_FIX = "copy the model again"


@dataclass(frozen=True, eq=False)
class Fusion:
    """A small model that combines the scores of rankers and the names in a text into one calibrated probability.

    Args:
        weights: float64, one for each of ``features.NAMES``.
        log_documents: float32 [labels]: the logarithm of 1 + the number of training documents of each label.
        curve: precision and recall by threshold, on held-out documents.
        nr_held_out: number of held-out documents that it was learned from.
    """

    weights: np.ndarray
    log_documents: np.ndarray
    curve: Curve
    nr_held_out: int = 0

    @classmethod
    def learn(cls, scores: csr_matrix, evidence: csr_matrix | None, held_out: spmatrix, Y: spmatrix) -> Self:
        """Learn from documents that the rankers were not trained on.

        Args:
            scores: documents × labels: the rankers' best labels, with scores from 0 to 1.
            evidence: documents × labels: what names in the documents are worth.
            held_out: the labels of these documents.
            Y: the labels of all training documents, whose numbers are features.
        """
        documents = np.bincount(csr_matrix(Y).indices, minlength=Y.shape[1])
        log_documents = np.log1p(documents).astype(np.float32)
        truth = csr_matrix(held_out)
        found = join_candidates(scores, evidence)
        right = _is_right(found, truth)
        features = candidate_features(found, log_documents.astype(np.float64))
        # Not a digit more than is the same with every version of a mathematical library.
        weights = np.round(fit_logistic(features, right, DEFAULT_WEIGHTS), 6)
        learned = cls(weights, log_documents, Curve([], [], []), truth.shape[0])
        curve = measure_curve(learned._probability(found), right, truth.nnz)
        return cls(weights, log_documents, curve, truth.shape[0])

    def combine(
        self, scores: csr_matrix, evidence: csr_matrix | None, only_topk: int, threshold: float = 0.0
    ) -> csr_matrix:
        """Return the probabilities of the best labels: documents × labels, descending within a row.

        Args:
            scores: documents × labels: the rankers' best labels.
            evidence: documents × labels: what names in the documents are worth.
            only_topk: maximum number of labels per document.
            threshold: labels with a lower probability are left out.
        """
        count = scores.shape[0]
        parts = []
        for begin in range(0, count, _ROWS):
            whole = count <= _ROWS
            rows = slice(begin, begin + _ROWS)
            some = scores if whole else scores[rows]
            named = evidence if whole or evidence is None else evidence[rows]
            parts.append(self._best(join_candidates(some, named), some.shape, only_topk, threshold))
        indptr = np.concatenate([[0], np.cumsum(np.concatenate([[0], *(part[2] for part in parts)])[1:])])
        data = np.concatenate([np.zeros(0, np.float32), *(part[0] for part in parts)])
        labels = np.concatenate([np.zeros(0, np.int32), *(part[1] for part in parts)])
        result = csr_matrix(scores.shape, dtype=np.float32)
        result.data, result.indices, result.indptr = data, labels, indptr.astype(np.int32)
        return result

    def _best(
        self, found: Candidates, shape: tuple[int, int], only_topk: int, threshold: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return probabilities and labels of the best labels of all documents, and their number in each."""
        probability = self._probability(found)
        order = np.lexsort((found.labels, -probability, found.rows))
        rows = found.rows[order]
        starts = np.searchsorted(rows, np.arange(shape[0]))
        keep = (np.arange(len(rows)) - starts[rows] < only_topk) & (probability[order] >= threshold)
        order = order[keep]
        counts = np.bincount(rows[keep], minlength=shape[0])
        return probability[order], found.labels[order].astype(np.int32), counts

    def _probability(self, found: Candidates) -> np.ndarray:
        features = candidate_features(found, self.log_documents.astype(np.float64))
        return (1.0 / (1.0 + np.exp(-(features @ self.weights)))).astype(np.float32)

    def save(self, folder: str | Path) -> None:
        """Write a folder.

        Args:
            folder: folder of the fusion, which must not exist.
        """
        folder = Path(folder)
        folder.mkdir(parents=True)
        np.save(folder / _DOCUMENTS, self.log_documents)
        content = {
            "version": _VERSION,
            "weights": dict(zip(NAMES, self.weights.tolist(), strict=True)),
            "nr_held_out": self.nr_held_out,
            "curve": self.curve._asdict(),
        }
        (folder / _HEADER).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load a folder that `save` wrote.

        Args:
            folder: folder of the fusion.
        """
        path = Path(folder) / _HEADER
        content = read_json(path, expected="the weights of a fusion", fix=_FIX)
        if content.get("version") != _VERSION or set(content.get("weights", ())) != set(NAMES):
            raise InputError(
                f"{path} is of another version of xmc_tf",
                expected=f"version {_VERSION}, with weights of {len(NAMES)} features",
                received=f"version {content.get('version')!r}",
                fix="train the model again, or load it with the version that wrote it",
            )
        try:
            documents = np.load(path.parent / _DOCUMENTS, allow_pickle=False)
            weights = np.array([content["weights"][name] for name in NAMES], np.float64)
            return cls(weights, documents, Curve(**content["curve"]), int(content["nr_held_out"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path.parent} cannot be read: {error}", fix=_FIX) from None


def _is_right(found: Candidates, truth: csr_matrix) -> np.ndarray:
    truth = truth.sorted_indices()
    keys = found.rows * truth.shape[1] + found.labels
    positives = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr)) * truth.shape[1] + truth.indices
    place = np.minimum(np.searchsorted(positives, keys), max(len(positives) - 1, 0))
    return positives[place] == keys if len(positives) else np.zeros(len(keys), bool)

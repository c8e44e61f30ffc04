"""The labels that are suggested for a text, by one model or by two whose scores are averaged."""

import dataclasses

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.metrics.ensemble import ensemble
from xmc_tf.models.explaining.explanation import LabelExplanation
from xmc_tf.models.model import Model
from xmc_tf.params.pools import FUSED_LABELS
from xmc_tf.rankers.ensemble import first_k


class Suggester:
    """Models of the same labels, each with the share of its scores."""

    def __init__(self, *parts: tuple[Model, float]) -> None:
        self.parts = parts

    def predict(self, texts: list[str], k: int) -> csr_matrix:
        """Return the k best labels of each text, each row sorted by score."""
        found = self._weighted(texts, k)
        return first_k(ensemble("average", found), k) if len(found) > 1 else found[0]

    def _weighted(self, texts: list[str], k: int) -> list[csr_matrix]:
        """Return the predictions of each model, times its share, so that their mean is that of the models."""
        count = len(self.parts)
        most = max(k, FUSED_LABELS) if count > 1 else k
        return [
            count * share * model.predict(texts, only_topk=most, threads=1, quiet=True) for model, share in self.parts
        ]

    def explain(self, text: str, k: int) -> list[LabelExplanation]:
        """Return the k best labels with their evidence: that of the model that gives the label the higher score."""
        if len(self.parts) == 1:
            return list(self.parts[0][0].explain(text, k).labels)
        weighted = self._weighted([text], k)
        best = first_k(ensemble("average", weighted), k)
        source = np.argmax([one[0, best.indices].toarray()[0] for one in weighted], axis=0)
        found: dict[int, LabelExplanation] = {}
        for number, (model, _) in enumerate(self.parts):
            if len(labels := best.indices[source == number]):
                found |= {one.label: one for one in model.only(labels.tolist()).explain(text, len(labels)).labels}
        scores = zip(best.indices.tolist(), best.data.tolist(), strict=True)
        return [dataclasses.replace(found[label], score=score) for label, score in scores if label in found]

"""The measures once more, from their definitions, slowly: what the tests compare with."""

import math

import numpy as np


def ranked(scores, stored, k):
    """Return labels of one row by descending score, ties by id."""
    return sorted(np.flatnonzero(stored), key=lambda label: (-scores[label], label))[:k]


def reference(truth, scores, stored, k, gains, chosen):
    """Return all measures at k over the chosen labels; None if undefined.

    truth, stored: bool (documents, labels); scores: float; gains: float (labels,); chosen: bool (labels,).
    """
    documents, labels = truth.shape
    whole = bool(chosen.all())
    hits = recall = ndcg = gain = best_gain = gain_ndcg = best_gain_ndcg = predicted = 0.0
    counted = 0
    true_of, predicted_of, found_of = np.zeros(labels), np.zeros(labels), np.zeros(labels)
    for row in range(documents):
        true = [label for label in range(labels) if truth[row, label] and chosen[label]]
        top = ranked(scores[row], stored[row], k)
        found = [(rank, label) for rank, label in enumerate(top) if label in true]
        predicted += sum(bool(chosen[label]) for label in top)
        for label in true:
            true_of[label] += 1
        for label in top:
            predicted_of[label] += 1
        for _, label in found:
            found_of[label] += 1
        if whole or true:
            counted += 1
        if not true:
            continue
        discount = [1 / math.log2(rank + 2) for rank in range(k)]
        ideal = sum(discount[: len(true)])
        best = sorted((gains[label] for label in true), reverse=True)[:k]
        hits += len(found)
        recall += len(found) / len(true)
        ndcg += sum(discount[rank] for rank, _ in found) / ideal
        gain += sum(gains[label] for _, label in found)
        best_gain += sum(best)
        gain_ndcg += sum(gains[label] * discount[rank] for rank, label in found) / ideal
        best_gain_ndcg += sum(g * d for g, d in zip(best, discount, strict=False)) / ideal
    occurs = [label for label in range(labels) if chosen[label] and true_of[label]]
    if not occurs:
        return None
    return {
        "P": hits / documents / k,
        "R": recall / counted,
        "nDCG": ndcg / counted,
        "PSP": gain / best_gain,
        "PSnDCG": gain_ndcg / best_gain_ndcg,
        "micro-F1": 2 * hits / (predicted + true_of.sum()),
        "macro-F1": np.mean([2 * found_of[i] / (true_of[i] + predicted_of[i]) for i in occurs]),
    }

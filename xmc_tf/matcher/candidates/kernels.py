"""The compiled loops that choose candidates; a document's candidates depend only on its own key."""

import numpy as np

from xmc_tf.common.compiled import inner, kernel


@inner
def _mix(z: np.uint64) -> np.uint64:
    """Return splitmix64's finalizer of a number: each bit of the result depends on every bit of the argument."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inner
def _drawn(state: np.uint64, wanted: int, left: int) -> bool:
    """Return whether the next of ``left`` items is among the ``wanted`` items that remain to be drawn."""
    return (_mix(state) >> np.uint64(11)) * (1.0 / 9007199254740992.0) * left < wanted


@kernel
def count_candidates(
    documents: np.ndarray,
    splits: np.ndarray,
    matched_starts: np.ndarray,
    matched: np.ndarray,
    true_starts: np.ndarray,
    true: np.ndarray,
) -> np.ndarray:
    """Return the number of each document's candidates: children of its matched parents, and labels elsewhere."""
    totals = np.zeros(len(documents), np.int64)
    for i in range(len(documents)):
        document = documents[i]
        label, last = true_starts[document], true_starts[document + 1]
        total = last - label
        for k in range(matched_starts[document], matched_starts[document + 1]):
            begin, end = splits[matched[k]], splits[matched[k] + 1]
            total += end - begin
            while label < last and true[label] < begin:
                label += 1
            while label < last and true[label] < end:
                label += 1
                total -= 1
        totals[i] = total
    return totals


@kernel
def choose_candidates(
    documents: np.ndarray,
    splits: np.ndarray,
    matched_starts: np.ndarray,
    matched: np.ndarray,
    true_starts: np.ndarray,
    true: np.ndarray,
    true_weights: np.ndarray,
    totals: np.ndarray,
    bounds: np.ndarray,
    key: np.uint64,
    ids: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
) -> None:
    """Write the candidates of each document in ascending order: its labels and a sample of the others.

    Taking each of the ``left`` remaining items with probability ``wanted / left`` draws exactly as many as wanted,
    every subset with the same probability (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S).
    """
    step = np.uint64(0x9E3779B97F4A7C15)
    for i in range(len(documents)):
        document = documents[i]
        state = _mix(key + np.uint64(document) * step)
        label, last = true_starts[document], true_starts[document + 1]
        room, to = bounds[i + 1] - bounds[i], bounds[i]
        labels_left = last - label
        labels_wanted = min(labels_left, room)
        others_left = totals[i] - labels_left
        others_wanted = room - labels_wanted
        # One more range, behind all nodes, takes the labels below no matched parent.
        stop = matched_starts[document + 1]
        for k in range(matched_starts[document], stop + 1):
            begin = splits[matched[k]] if k < stop else splits[-1]
            end = splits[matched[k] + 1] if k < stop else splits[-1]
            node = begin
            while True:
                is_label = label < last and (true[label] < begin or (node < end and true[label] == node))
                if is_label:
                    here = true[label]
                    weight = true_weights[label]
                    label += 1
                    wanted, left = labels_wanted, labels_left
                elif node < end:
                    here, weight = node, np.float32(1)
                    wanted, left = others_wanted, others_left
                else:
                    break
                taken = wanted == left
                if not taken and wanted > 0:
                    state += step
                    taken = _drawn(state, wanted, left)
                if taken:
                    ids[to], weights[to] = here, weight
                    targets[to] = np.float32(1) if is_label else np.float32(0)
                    to += 1
                if is_label:
                    labels_left -= 1
                    labels_wanted -= taken
                else:
                    others_left -= 1
                    others_wanted -= taken
                if here == node:
                    node += 1

"""Sorting and selection in kernels. Each use of NumPy's functions would add 1 to 3 seconds of compilation."""

import numpy as np

from xmc_tf.common.compiled import inner

_RUN = 16  # runs of this length are sorted by insertion, which is faster for few numbers


@inner
def sort_ascending(numbers: np.ndarray, spare: np.ndarray) -> None:
    """Sort numbers in place with merge sort. ``spare`` is scratch memory of the same type and length."""
    count = len(numbers)
    for begin in range(0, count, _RUN):
        for i in range(begin + 1, min(begin + _RUN, count)):
            number, at = numbers[i], i
            while at > begin and numbers[at - 1] > number:
                numbers[at] = numbers[at - 1]
                at -= 1
            numbers[at] = number
    width = _RUN
    while width < count:
        for begin in range(0, count - width, 2 * width):
            middle, end = begin + width, min(begin + 2 * width, count)
            for i in range(begin, middle):
                spare[i] = numbers[i]
            a, b, at = begin, middle, begin
            while a < middle:
                if b < end and numbers[b] < spare[a]:
                    numbers[at] = numbers[b]
                    b += 1
                else:
                    numbers[at] = spare[a]
                    a += 1
                at += 1
        width *= 2


@inner
def first_at_least(numbers: np.ndarray, number: int, low: int, high: int) -> int:
    """Return the index of the first of the ascending ``numbers[low:high]`` that is not smaller, or ``high``."""
    while low < high:
        middle = (low + high) >> 1
        if numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def kth_largest(numbers: np.ndarray, k: int) -> np.float32:
    """Return the ``k``-th largest number by quickselect, which reorders the array."""
    low, high, place = 0, numbers.size - 1, numbers.size - k
    while low < high:
        a, b, c = numbers[low], numbers[(low + high) >> 1], numbers[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while numbers[i] < pivot:
                i += 1
            while numbers[j] > pivot:
                j -= 1
            if i <= j:
                numbers[i], numbers[j] = numbers[j], numbers[i]
                i += 1
                j -= 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            break
    return numbers[place]


@inner
def _is_worse(score_a: float, node_a: int, score_b: float, node_b: int) -> bool:
    """Return True if a ranks after b: its score is lower, or its score is equal and its number is higher."""
    return score_a < score_b or (score_a == score_b and node_a > node_b)


@inner
def _sift_down(nodes: np.ndarray, scores: np.ndarray, at: int, size: int) -> None:
    """Restore the heap order below position ``at``. The root of the heap is the worst node."""
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and _is_worse(scores[child + 1], nodes[child + 1], scores[child], nodes[child]):
            child += 1
        if not _is_worse(scores[child], nodes[child], scores[at], nodes[at]):
            return
        scores[at], scores[child] = scores[child], scores[at]
        nodes[at], nodes[child] = nodes[child], nodes[at]
        at = child


@inner
def offer(nodes: np.ndarray, scores: np.ndarray, size: int, most: int, node: int, score: float) -> int:
    """Insert a node into a heap of the ``most`` best nodes if it is good enough; return the size of the heap."""
    if size == most:
        if _is_worse(scores[0], nodes[0], score, node):
            scores[0], nodes[0] = score, node
            _sift_down(nodes, scores, 0, size)
        return size
    at = size
    scores[at], nodes[at] = score, node
    while at > 0:
        parent = (at - 1) // 2
        if not _is_worse(scores[at], nodes[at], scores[parent], nodes[parent]):
            break
        scores[at], scores[parent] = scores[parent], scores[at]
        nodes[at], nodes[parent] = nodes[parent], nodes[at]
        at = parent
    return size + 1


@inner
def sort_best_first(nodes: np.ndarray, scores: np.ndarray, size: int) -> None:
    """Sort such a heap from best to worst."""
    for end in range(size - 1, 0, -1):
        scores[0], scores[end] = scores[end], scores[0]
        nodes[0], nodes[end] = nodes[end], nodes[0]
        _sift_down(nodes, scores, 0, end)

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

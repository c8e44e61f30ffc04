import numpy as np

from xmc_tf.common.compiled import kernel

_MIXING = np.uint64(0x9E3779B97F4A7C15)


@kernel
def unique_by_owner(ids, bounds, places, unique, owners, positions, counts):
    """Find the distinct ids, ordered by owner and then by first occurrence, and return their number. ``bounds`` holds
    the first id of each owner from the second on. ``places`` is all -1, and its length is a power of two greater than
    the number of ids. ``counts`` is all zeros. The kernel fills ``unique``, ``positions`` and ``counts``. ``owners`` is
    working memory; it and ``unique`` are as long as ``ids``.
    """
    mask, found = np.uint64(len(places) - 1), 0
    for number in range(len(ids)):
        place = ((np.uint64(ids[number]) * _MIXING) >> np.uint64(32)) & mask
        while places[place] >= 0 and unique[places[place]] != ids[number]:
            place = (place + np.uint64(1)) & mask
        if places[place] < 0:
            owner = np.searchsorted(bounds, ids[number], side="right")
            places[place] = found
            unique[found], owners[found] = ids[number], owner
            counts[owner] += 1
            found += 1
        positions[number] = places[place]
    ends = np.cumsum(counts)
    first_seen = unique[:found].copy()
    for number in range(found - 1, -1, -1):
        owner = owners[number]
        ends[owner] -= 1
        unique[ends[owner]] = first_seen[number]
        owners[number] = ends[owner]
    for number in range(len(positions)):
        positions[number] = owners[positions[number]]
    return found


@kernel
def add_rows(values, take, put, sums):
    """Add row ``take[i]`` of ``values`` to row ``put[i]`` of ``sums``, for each i."""
    for number in range(len(put)):
        # Slices let the compiler add several numbers at a time.
        source, target = values[take[number]], sums[put[number]]
        for column in range(len(target)):
            target[column] += source[column]

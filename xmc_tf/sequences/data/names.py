import numpy as np

_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


def hashes(names: np.ndarray) -> np.ndarray:
    """Return a 64-bit hash of each name, the same in every process and for every width of the array."""
    letters = names.view(np.uint8).reshape(len(names), names.dtype.itemsize)
    found = np.full(len(names), _OFFSET)
    for column in letters.T:
        found = np.where(column != 0, (found ^ column) * _PRIME, found)
    # FNV's high bits are not random enough, so the last steps are those of MurmurHash3.
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        found = (found ^ (found >> np.uint64(33))) * np.uint64(factor)
    return found ^ (found >> np.uint64(33))


class NameNumbers:
    """Numbers of names, in the order of their first appearance."""

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self._ids: dict[bytes, int] = {}

    def ids(self, names: np.ndarray) -> np.ndarray:
        """Return the number of each name; new names get the next numbers."""
        if not len(names):
            return np.zeros(0, np.int32)
        _, first, inverse = np.unique(hashes(names), return_index=True, return_inverse=True)
        if not np.array_equal(names[first][inverse], names):  # two names with the same hash
            _, first, inverse = np.unique(names, return_index=True, return_inverse=True)
        numbers = np.empty(len(first), np.int32)
        order = np.argsort(first)
        for at, name in zip(order.tolist(), names[first[order]].tolist(), strict=True):
            number = self._ids.setdefault(name, len(self.names))
            if number == len(self.names):
                self.names.append(name)
            numbers[at] = number
        return numbers[inverse]

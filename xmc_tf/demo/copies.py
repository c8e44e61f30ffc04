"""Detection of texts that are copies of each other, or nearly so."""

from collections import Counter, defaultdict
from collections.abc import Sequence

_RUN = 4  # number of consecutive words that are compared


def originals(texts: Sequence[Sequence[str]], overlap: float = 0.5) -> list[int]:
    """Return the texts that are not near copies of an earlier text.

    Two texts are near copies if they share ``overlap`` of the shorter one's runs of four words.

    Args:
        texts: the words of each text.
        overlap: the minimum share of common runs of a copy.

    Returns:
        Numbers of texts, ascending.
    """
    holders: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    size: dict[int, int] = {}
    for number, words in enumerate(texts):
        runs = {tuple(words[i : i + _RUN]) for i in range(max(len(words) - _RUN + 1, 1))}
        shared = Counter(other for run in runs for other in holders[run] if run in holders)
        if any(count >= overlap * min(len(runs), size[other]) for other, count in shared.items()):
            continue
        size[number] = len(runs)
        for run in runs:
            holders[run].append(number)
    return list(size)

"""A rule for words that are in no dictionary: their longest known ending determines the lemma."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from xmc_tf.words.kernels import keys_of_words

SAMPLE = 200_000  # forms that are counted
_SHORTEST, _LONGEST = 2, 6  # letters of an ending
LONGEST_CUT = 4 * _LONGEST  # bytes that are cut off
_LEAST_FORMS, _LEAST_SHARE = 20, 0.9


class Endings(NamedTuple):
    """Endings of words, and how they change in the lemma."""

    endings: np.ndarray  # int64: their keys, ascending
    cuts: np.ndarray  # int32: number of bytes to cut off
    added: np.ndarray  # uint8: the bytes to add, of all endings
    added_ends: np.ndarray  # int64: where those of each ending end


NO_ENDINGS = Endings(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.uint8), np.zeros(0, np.int64))


def learn_endings(lemma_of_form: Mapping[str, str]) -> Endings:
    """Learn from a dictionary the endings of two to six letters for which nine tenths of the forms change alike."""
    step = max(1, len(lemma_of_form) // SAMPLE)
    changes: dict[str, Counter[tuple[str, str] | None]] = defaultdict(Counter)
    for number, (form, lemma) in enumerate(lemma_of_form.items()):
        if number % step:
            continue
        same = 0
        while same < min(len(form), len(lemma)) and form[same] == lemma[same]:
            same += 1
        for length in range(_SHORTEST, min(_LONGEST, len(form) - 2) + 1):
            # A change that begins before the ending does not depend on the ending alone, and counts as None.
            known = len(form) - same <= length
            changes[form[-length:]][(form[same:], lemma[same:]) if known else None] += 1
    rules: dict[str, tuple[str, str]] = {}
    for ending in sorted(changes, key=len):
        (change, count), total = changes[ending].most_common(1)[0], changes[ending].total()
        if change is None or total < _LEAST_FORMS or count < _LEAST_SHARE * total:
            continue
        shorter = next((rules[ending[at:]] for at in range(1, len(ending) - 1) if ending[at:] in rules), ("", ""))
        if change != shorter:
            rules[ending] = change
    encoded = [ending.encode() for ending in rules]
    ends = np.cumsum([len(ending) for ending in encoded], dtype=np.int64)
    keys = keys_of_words(np.frombuffer(b"".join(encoded), np.uint8).copy(), ends)
    order = np.argsort(keys)
    changed = list(rules.values())
    ordered = [changed[place] for place in order]
    added = [more.encode() for _, more in ordered]
    return Endings(
        keys[order],
        np.array([len(cut.encode()) for cut, _ in ordered], np.int32),
        np.frombuffer(b"".join(added), np.uint8),
        np.cumsum([len(one) for one in added], dtype=np.int64),
    )

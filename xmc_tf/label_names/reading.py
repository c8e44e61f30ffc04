"""Settings for reading the words of names and texts: characters, lemmas, and pieces of long words."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xmc_tf.common.array_views import kernel_view
from xmc_tf.label_names.characters import character_table
from xmc_tf.label_names.kernels import hash_texts
from xmc_tf.words.dictionaries import Strings, dictionary_languages, load_dictionary
from xmc_tf.words.languages import WITH_COMPOUNDS

PIECE = 5  # characters
_AT_ONCE = 100_000  # forms whose hashes are computed at once


class WordOptions(NamedTuple):
    characters: np.ndarray  # int32: the character table
    forms: np.ndarray  # int64: hashes of forms of words, ascending
    lemma_of: np.ndarray  # int32: the lemma of each form
    lemma_keys: np.ndarray  # int64: the hash of the prefix of each lemma
    lemma_exact: np.ndarray  # int64: the hash of each whole lemma
    piece: int  # characters of the pieces of long words, which count as additional words; 0: no pieces

    def for_kernels(self) -> "WordOptions":
        """Return a copy with arrays in the types that the compiled kernels expect."""
        return WordOptions(
            kernel_view(self.characters, np.int32), kernel_view(self.forms, np.int64),
            kernel_view(self.lemma_of, np.int32), kernel_view(self.lemma_keys, np.int64),
            kernel_view(self.lemma_exact, np.int64), self.piece,
        )  # fmt: skip

    def without(self, words: Sequence[str]) -> "WordOptions":
        """Return a copy in which some words, given in lower case, are their own lemmas."""
        _, own, _ = _hashed(Strings.of([word.encode() for word in words]), as_written())
        kept = ~np.isin(self.forms, own)
        return self._replace(forms=self.forms[kept], lemma_of=self.lemma_of[kept])

    def reduced(self, words: np.ndarray, exact: np.ndarray) -> "WordOptions":
        """Keep the forms needed for names with these hashes of prefixes (``words``) and whole words (``exact``)."""
        if not len(self.forms):
            return self
        known = np.isin(self.lemma_keys, words) | np.isin(self.lemma_exact, exact)
        kept = np.flatnonzero(known[self.lemma_of] | np.isin(self.forms, exact))
        used, lemma_of = np.unique(self.lemma_of[kept], return_inverse=True)
        return self._replace(
            forms=self.forms[kept], lemma_of=lemma_of.astype(np.int32), lemma_keys=self.lemma_keys[used],
            lemma_exact=self.lemma_exact[used],
        )  # fmt: skip


def as_written() -> WordOptions:
    """Return a `WordReading` that uses words as they are written, without lemmas or pieces."""
    none = np.zeros(0, np.int64)
    return WordOptions(character_table(), none, np.zeros(0, np.int32), none, none, 0)


def reading_of(languages: Sequence[str]) -> WordOptions:
    """Return the `WordReading` of some languages. If several share a form, the first decides its lemma."""
    plain = as_written()
    piece = PIECE if languages and languages[0] in WITH_COMPOUNDS else 0
    forms: list[np.ndarray] = []
    numbers: list[np.ndarray] = []
    keys: list[np.ndarray] = []
    exact: list[np.ndarray] = []
    for code in languages:
        if code not in dictionary_languages():
            continue
        dictionary = load_dictionary(code)
        _, whole, single = _hashed(dictionary.forms, plain)
        lemma_key, lemma_exact, single_lemma = _hashed(dictionary.lemmas, plain)
        kept = single & single_lemma[dictionary.lemma_of]
        forms.append(whole[kept])
        numbers.append(dictionary.lemma_of[kept] + sum(len(one) for one in keys))
        keys.append(lemma_key)
        exact.append(lemma_exact)
    if not forms:
        return plain._replace(piece=piece)
    every, first = np.unique(np.concatenate(forms), return_index=True)
    lemma_of = np.concatenate(numbers)[first].astype(np.int32)
    return WordOptions(plain.characters, every, lemma_of, np.concatenate(keys), np.concatenate(exact), piece)


def _hashed(strings: Strings, reading: WordOptions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return both hashes of each string, and whether it is a single word; the hashes of others are 0."""
    keys, exact = np.zeros(len(strings.ends), np.int64), np.zeros(len(strings.ends), np.int64)
    single = np.zeros(len(strings.ends), bool)
    for first in range(0, len(strings.ends), _AT_ONCE):
        ends = np.asarray(strings.ends[first : first + _AT_ONCE])
        begin = int(strings.ends[first - 1]) if first else 0
        data = np.concatenate([strings.letters[begin : ends[-1]], np.zeros(1, np.uint8)])
        found = hash_texts(data, np.concatenate([[0], ends - begin]), reading.for_kernels())
        one = found[2] == 1
        at = (np.cumsum(found[2]) - 1)[one]
        place = first + np.flatnonzero(one)
        keys[place], exact[place], single[place] = found[0][at], found[1][at], True
    return keys, exact, single

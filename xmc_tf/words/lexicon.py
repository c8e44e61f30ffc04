"""The lexicon of a model, which maps the keys of word forms to the keys of their lemmas."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from xmc_tf.common.array_views import kernel_view
from xmc_tf.words.dictionaries import NO_ENDINGS, Endings, Strings, dictionary_languages, load_dictionary
from xmc_tf.words.kernels import OWN, LexiconArrays, key_table

# The arrays by which a lexicon is stored, and their types.
FIELDS = {
    "forms": np.int64, "lemma_of": np.int32, "lemma_keys": np.int64,
    "endings": np.int64, "cuts": np.int32, "added": np.uint8, "added_ends": np.int64,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Maps words to lemmas by dictionary, or else by their ending; all other words are their own lemmas."""

    forms: np.ndarray  # int64: their keys, ascending
    lemma_of: np.ndarray  # int32: the lemma of each form
    lemma_keys: np.ndarray  # int64: the key of each lemma
    rule: Endings  # for words that are not among the forms
    texts: tuple[Strings, ...] = ()  # the lemmas themselves, of each dictionary; a model does not need them

    @classmethod
    def of(cls, languages: Sequence[str]) -> "Lexicon":
        """Return the lexicon of some languages; if they share a form, the first language determines its lemma."""
        found = [load_dictionary(code) for code in languages if code in dictionary_languages()]
        if not found:
            return NO_LEXICON
        texts = tuple(dictionary.lemmas for dictionary in found)
        lemma_keys = np.concatenate([lemmas.keys() for lemmas in texts])
        if len(found) == 1:
            return cls(found[0].keys, found[0].lemma_of, lemma_keys, found[0].endings, texts)
        before = np.cumsum([0, *(len(lemmas.ends) for lemmas in texts)])
        keys = np.concatenate([dictionary.keys for dictionary in found])
        lemma_of = np.concatenate([one.lemma_of + first for one, first in zip(found, before, strict=False)])
        forms, first = np.unique(keys, return_index=True)
        # Endings have different meanings in different languages, so there are no rules.
        return cls(forms, lemma_of[first].astype(np.int32), lemma_keys, NO_ENDINGS, texts)

    def __len__(self) -> int:
        return len(self.forms) + len(self.rule.endings)

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> "Lexicon":
        """Create a lexicon from the arrays listed in ``FIELDS``."""
        rule = Endings(*(arrays[name] for name in Endings._fields))
        return cls(arrays["forms"], arrays["lemma_of"], arrays["lemma_keys"], rule)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays listed in ``FIELDS``."""
        own = {"forms": self.forms, "lemma_of": self.lemma_of, "lemma_keys": self.lemma_keys}
        return {name: np.asarray(array, FIELDS[name]) for name, array in (own | self.rule._asdict()).items()}

    @cached_property
    def arrays(self) -> LexiconArrays:
        """The arrays of the lexicon in the form that the compiled kernels expect."""
        held = {name: kernel_view(array, array.dtype) for name, array in self.to_arrays().items()}
        return LexiconArrays(key_table(held.pop("forms")), **held)

    def without(self, words: Sequence[str]) -> "Lexicon":
        """Return a copy in which some words, given in lower case, are their own lemmas."""
        if not words:
            return self
        own = Strings.of([word.encode() for word in words])
        keys = own.keys()
        forms = np.union1d(self.forms, keys)
        lemma_of = np.empty(len(forms), np.int32)
        lemma_of[np.searchsorted(forms, self.forms)] = self.lemma_of
        lemma_of[np.searchsorted(forms, keys)] = len(self.lemma_keys) + np.arange(len(keys))
        lemma_keys = np.concatenate([self.lemma_keys, keys])
        return dataclasses.replace(
            self, forms=forms, lemma_of=lemma_of, lemma_keys=lemma_keys, texts=(*self.texts, own)
        )

    def reduced(self, keys: np.ndarray) -> "Lexicon":
        """Return the part that a model needs: forms for which the key itself or the lemma's key is in ``keys``."""
        known = np.isin(self.lemma_keys, keys)
        kept = np.flatnonzero(known[self.lemma_of] | np.isin(self.forms, keys))
        used, lemma_of = np.unique(self.lemma_of[kept], return_inverse=True)
        return dataclasses.replace(
            self, forms=np.asarray(self.forms[kept]), lemma_of=lemma_of.astype(np.int32),
            lemma_keys=self.lemma_keys[used], texts=(),
        )  # fmt: skip

    def lemma(self, word: bytes, source: int) -> bytes:
        """Return the lemma of a word; ``source`` is the source that `lemma_key` returns for it."""
        if source == OWN:
            return word
        if source >= 0:
            for lemmas in self.texts:
                if source < len(lemmas.ends):
                    return lemmas.string(source)
                source -= len(lemmas.ends)
        rule, place = self.rule, OWN - 1 - source
        first = int(rule.added_ends[place - 1]) if place else 0
        added = rule.added[first : int(rule.added_ends[place])].tobytes()
        return word[: len(word) - int(rule.cuts[place])] + added


# The lexicon of words as they are written.
NO_LEXICON = Lexicon(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64), NO_ENDINGS)

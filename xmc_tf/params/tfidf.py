"""Parameters of the TF-IDF features."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xmc_tf.params.base import Params
from xmc_tf.params.values import knob

AUTO, AS_WRITTEN = "auto", "none"
TFIDF_FLAGS = ("language", "pieces", "piece_weight", "ngram_max", "min_df", "max_features", "sublinear_tf")
"""The parameters that command lines have flags for."""


def first_language(setting: str) -> str | None:
    """Return the first code of a setting of languages; None if it has none."""
    return None if setting in (AUTO, AS_WRITTEN) else setting.partition(",")[0]


def _languages(text: str) -> str:
    """Return codes of languages in their canonical form."""
    codes = [code.strip().lower() for code in text.split(",")]
    if not all(re.fullmatch("[a-z]{2,4}", code) for code in codes) or (
        len(codes) > 1 and {AUTO, AS_WRITTEN} & {*codes}
    ):
        raise ValueError(f"{AUTO}, {AS_WRITTEN}, or codes of languages, such as fi or fi,sv")
    return ",".join(dict.fromkeys(codes))


@dataclass(frozen=True)
class TfidfParams(Params):
    """Options of TF-IDF: which words and pieces of words are features, and how they are weighted."""

    ngram_max: int = knob(2, low=1, high=8, help="maximum length of word n-grams")
    min_df: int = knob(2, low=1, help="minimum number of documents that contain a feature")
    max_features: int = knob(
        500_000, low=1, help="maximum number of features, the most frequent are kept; smaller saves memory and time"
    )
    sublinear_tf: bool = knob(True, help="replace the count of a term by 1 + log(count)")
    lowercase: bool = knob(True, help="convert texts to lower case")
    min_word_length: int = knob(2, low=1, help="minimum number of characters in a word")
    norm: str = knob("l2", choices=("l2", "l1", "none"), help="normalization of each document")
    language: str = knob(
        AUTO,
        parse=_languages,
        help="language of the texts, whose words are replaced by their dictionary forms (lemmas): a code such as fi, "
        "or several as fi,sv; auto: found in the texts; none: words are taken as written",
    )
    pieces: int = knob(
        5,
        low=3,
        high=16,
        also=(0,),
        help="number of characters of the pieces of words of 6 characters or more, which match parts of compounds and "
        "other forms of a word; 0: no pieces",
    )
    piece_weight: float | None = knob(
        None,
        above=0,
        high=10,
        help="weight of pieces in relation to words (default: 0.5; in languages that write compounds as one word 0.7; "
        "for texts of more than 40 words 0.2 less)",
    )

    @property
    def splits_scripts(self) -> bool:
        """Whether each character of a script that writes without spaces is a word."""
        return self.language != AS_WRITTEN

    @classmethod
    def of_header(cls, header: Mapping[str, Any]) -> "TfidfParams":
        """Return the parameters in the header of a fitted TF-IDF; version 1 has words as written, without pieces.

        Args:
            header: the content of its ``params.json``.
        """
        given = header.get("params", {})
        if header.get("version") == 1 and isinstance(given, dict):
            given = {"language": AS_WRITTEN, "pieces": 0, **given}
        return cls.from_json(given)

    @property
    def description(self) -> str:
        """A description of the features, for people."""
        if self.language == AS_WRITTEN:
            words = "words as they are written"
        elif self.language == AUTO:
            words = "words; their language is found in the texts"
        else:
            words = f"lemmas ({self.language})"
        out = [words if self.ngram_max == 1 else f"{words}, in sequences of up to {self.ngram_max}"]
        if self.pieces:
            weight = "" if self.piece_weight is None else f" with weight {self.piece_weight:g}"
            out.append(f"pieces of {self.pieces} characters of long words{weight}")
        return "; ".join(out)

    @classmethod
    def plain(cls, **changes: Any) -> "TfidfParams":
        """Return parameters for words as they are written, without pieces.

        Args:
            **changes: further parameters.
        """
        return cls(**{"language": AS_WRITTEN, "pieces": 0, **changes})

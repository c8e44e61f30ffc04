"""TF-IDF parameters and their conversion from PECOS's vectorizer configurations."""

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import parse_json
from xmc_tf.params.base import Params
from xmc_tf.params.values import param_field

AUTO, AS_WRITTEN = "auto", "none"
TFIDF_FLAGS = ("language", "pieces", "piece_weight", "ngram_max", "min_df", "max_features", "sublinear_tf")
"""The parameters that command lines have flags for."""
FEW = 1000  # documents, of which the words of names are too few


def first_language(setting: str) -> str | None:
    """Return the first language code of a ``language`` setting, or None if it has none."""
    return None if setting in (AUTO, AS_WRITTEN) else setting.partition(",")[0]


def _languages(text: str) -> str:
    codes = [code.strip().lower() for code in text.split(",")]
    mixed = len(codes) > 1 and {AUTO, AS_WRITTEN} & {*codes}
    if mixed or not all(re.fullmatch("[a-z]{2,4}", code) for code in codes):
        raise ValueError(f"{AUTO}, {AS_WRITTEN}, or language codes such as fi or fi,sv")
    return ",".join(dict.fromkeys(codes))


@dataclass(frozen=True)
class TfidfParams(Params):
    """Options of TF-IDF: which words and pieces of words are features, and how they are weighted."""

    ngram_max: int = param_field(2, low=1, high=8, help="maximum length of word n-grams")
    min_df: int = param_field(2, low=1, help="minimum number of documents that contain a feature")
    max_features: int = param_field(
        500_000, low=1, help="maximum number of features (the most frequent are kept); smaller saves memory and time"
    )
    sublinear_tf: bool = param_field(True, help="replace the count of a term by 1 + log(count)")
    lowercase: bool = param_field(True, help="convert texts to lower case")
    min_word_length: int = param_field(2, low=1, help="minimum number of characters in a word")
    norm: str = param_field("l2", choices=("l2", "l1", "none"), help="normalization of each document")
    language: str = param_field(
        AUTO, parse=_languages,
        help="language of the texts, in which words are replaced by their dictionary forms (lemmas): a code such as "
        "fi, or several such as fi,sv; auto: detected in the texts; none: words are used as written",
    )  # fmt: skip
    pieces: int = param_field(
        5, low=3, high=16, also=(0,),
        help="length of the pieces (character sequences) of words of 6 or more characters; pieces let parts of "
        "compounds and other forms of a word match; 0: no pieces",
    )  # fmt: skip
    piece_weight: float | None = param_field(
        None, above=0, high=10,
        help="weight of pieces relative to words (default: 0.5; 0.7 in languages that write compounds as one word; 0.2 "
        "less if the texts average more than 40 words)",
    )  # fmt: skip

    @property
    def splits_scripts(self) -> bool:
        """Whether each character is a word in scripts that are written without spaces."""
        return self.language != AS_WRITTEN

    @property
    def description(self) -> str:
        """Description of the features in plain words."""
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
        """Return parameters that use words as written, without pieces.

        Args:
            **changes: values of other parameters.
        """
        return cls(**{"language": AS_WRITTEN, "pieces": 0, **changes})


_ALL = 2**31 - 1
# Key → the only value that our TF-IDF supports, which is PECOS's default (except for add_one_idf).
_FIXED: Mapping[str, Any] = {
    "truncate_length": -1,
    "max_df_ratio": 1.0,
    "max_df_cnt": -1,
    "binary": False,
    "use_idf": True,
    "smooth_idf": True,
    "add_one_idf": True,
    "keep_frequent_feature": True,
    "analyzer": "word",
}
_SUPPORTED = ("ngram_range", "max_feature", "min_df_ratio", "min_df_cnt", "sublinear_tf", "norm")
_WITHOUT_EFFECT = ("buffer_size", "threads")


def with_rare_words(params: TfidfParams) -> TfidfParams:
    """Keep features of a single document, unless the user chose otherwise: most words of names are in one name only."""
    return dataclasses.replace(params, min_df=1) if params.min_df == TfidfParams().min_df else params


def tfidf_of_pecos(text: str, place: str, nr_documents: int) -> TfidfParams:
    """Convert a vectorizer configuration of PECOS (JSON) to parameters. Errors name ``place``, which is its file or
    flag.
    """
    config = parse_json(text, of=place, expected="a vectorizer configuration", top=None, foreign=True)
    if not isinstance(config, dict) or config.get("type") != "tfidf":
        raise InputError(
            f"{place}: type is not supported", expected='"type": "tfidf"',
            received=repr(config.get("type"))[:60] if isinstance(config, dict) else type(config).__name__,
            fix="use tfidf, or compute the features with your vectorizer and pass the matrix with -x",
        )  # fmt: skip
    kwargs, norm = _only_vectorizer(config.get("kwargs", {}), place)
    for key, value in kwargs.items():
        if key in _FIXED and value != _FIXED[key]:
            raise _unsupported(place, key, json.dumps(_FIXED[key]), value)
        if key not in (*_FIXED, *_SUPPORTED, *_WITHOUT_EFFECT):
            raise InputError(f"{place}: unknown key {key}", expected=", ".join((*_SUPPORTED, *_FIXED)), received=key)
    ngrams = kwargs.get("ngram_range", [1, 1])
    if not (isinstance(ngrams, list) and len(ngrams) == 2 and ngrams[0] == 1 and type(ngrams[1]) is int):
        raise _unsupported(place, "ngram_range", "[1, n]", ngrams)
    share, count = kwargs.get("min_df_ratio", 0.0), kwargs.get("min_df_cnt", 0)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise _unsupported(place, "min_df_ratio", "a number from 0 to 1", share)
    for key, value in (("min_df_cnt", count), ("max_feature", kwargs.get("max_feature", 0))):
        if type(value) is not int or value < 0:
            raise _unsupported(place, key, "a whole number from 0", value)
    values = {
        "ngram_max": ngrams[1],
        "min_df": max(1, count, math.ceil(share * nr_documents)),
        "max_features": kwargs.get("max_feature", 0) or _ALL,
        "sublinear_tf": kwargs.get("sublinear_tf", False),
        "norm": norm,
        **{"language": AS_WRITTEN, "pieces": 0, "lowercase": False, "min_word_length": 1},
    }
    try:
        return TfidfParams.from_json(values)
    except InputError as error:
        raise error.found_in(place) from None


def _only_vectorizer(kwargs: Any, place: str) -> tuple[dict[str, Any], str]:
    """Return the single vectorizer of a configuration, and the norm that is applied at the end."""
    if not isinstance(kwargs, dict):
        raise InputError(f"{place}: kwargs is not an object", expected="a JSON object with the vectorizer's parameters")
    if "base_vect_configs" not in kwargs:
        return kwargs, kwargs.get("norm", "l2")
    base = kwargs["base_vect_configs"]
    if not (isinstance(base, list) and len(base) == 1 and isinstance(base[0], dict)):
        received = f"{len(base)}" if isinstance(base, list) else type(base).__name__
        problem = f"{place}: base_vect_configs must have one vectorizer"
        raise InputError(problem, expected="one object in a list", received=received)
    if others := set(kwargs) - {"base_vect_configs", "norm_p", "buffer_size", "threads"}:
        other = min(others)
        raise InputError(f"{place}: unknown key {other}", expected="base_vect_configs, norm_p", received=other)
    norm_p = kwargs.get("norm_p", 2)
    if norm_p not in (1, 2):
        raise _unsupported(place, "norm_p", "1 or 2", norm_p)
    return base[0], f"l{norm_p}"


def _unsupported(place: str, key: str, expected: str, received: Any) -> InputError:
    return InputError(
        f"{place}: {key} has a value that the TF-IDF of xmc_tf does not support", expected=expected,
        received=json.dumps(received)[:60],
        fix=f"leave {key} out, or compute the features with PECOS and pass the matrix with -x",
    )  # fmt: skip

"""Parameters of the TF-IDF features."""

from dataclasses import dataclass

from xmc_tf.params.base import Params
from xmc_tf.params.values import knob


@dataclass(frozen=True)
class TfidfParams(Params):
    """Options of TF-IDF: which words are features, and how they are weighted."""

    ngram_max: int = knob(2, low=1, high=8, help="maximum length of word n-grams")
    min_df: int = knob(2, low=1, help="minimum number of documents that contain a feature")
    max_features: int = knob(
        500_000, low=1, help="maximum number of features, the most frequent are kept; smaller saves memory and time"
    )
    sublinear_tf: bool = knob(True, help="replace the count of a term by 1 + log(count)")
    lowercase: bool = knob(True, help="convert texts to lower case")
    min_word_length: int = knob(2, low=1, help="minimum number of characters in a word")
    norm: str = knob("l2", choices=("l2", "l1", "none"), help="normalization of each document")

"""Parameters of the TF-IDF features."""

from dataclasses import dataclass

from xmc_tf.params.base import Params
from xmc_tf.params.values import knob


@dataclass(frozen=True)
class TfidfParams(Params):
    """Which words count as features, and what they weigh."""

    ngram_max: int = knob(2, low=1, high=8, help="longest run of words that is a feature")
    min_df: int = knob(2, low=1, help="documents that must hold a feature")
    max_features: int = knob(500_000, low=1, help="most features: those that occur most often")
    sublinear_tf: bool = knob(True, help="weigh by 1 + log(count) and not by the count")
    lowercase: bool = knob(True, help="make all letters small")
    min_word_length: int = knob(2, low=1, help="letters that a word must have")
    norm: str = knob("l2", choices=("l2", "l1", "none"), help="what a document's weights are scaled to")

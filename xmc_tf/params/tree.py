"""Parameters of the label tree."""

from dataclasses import dataclass
from typing import ClassVar

from xmc_tf.common.numbers import LARGEST_SEED, MOST_THREADS
from xmc_tf.params.base import Params
from xmc_tf.params.values import MisfitError, knob


@dataclass(frozen=True)
class HierarchicalKMeansParams(Params):
    """How the labels are split into clusters, and those into smaller ones, down to the leaves."""

    peer_name: ClassVar[str] = "pecos.xmc.base###HierarchicalKMeans.TrainParams"
    retired: ClassVar[tuple[str, ...]] = ("imbalanced_ratio", "imbalanced_depth")

    nr_splits: int = knob(16, low=2, help="children of each inner node of the tree; best a power of 2")
    min_codes: int | None = knob(None, low=1, help="nodes of the top level; null for nr_splits")
    max_leaf_size: int = knob(100, low=1, help="most labels of a leaf; as many as there are labels: no tree")
    spherical: bool = knob(True, help="scale the centres of k-means to length 1 after each round")
    seed: int = knob(0, low=0, high=LARGEST_SEED, help="seed of the random choices")
    kmeans_max_iter: int = knob(20, low=1, help="most rounds of one k-means")
    threads: int = knob(-1, low=1, high=MOST_THREADS, also=(-1,), help="threads; -1 for one a core")
    do_sample: bool = knob(False, help="cluster on samples of the labels at the upper levels")
    max_sample_rate: float = knob(1.0, above=0, high=1, help="share of the labels sampled at the last level")
    min_sample_rate: float = knob(0.1, above=0, high=1, help="share of the labels sampled at the first levels")
    warmup_ratio: float = knob(0.4, low=0, high=1, help="share of the levels that stay at min_sample_rate")

    def check_together(self) -> None:
        """The sampling rate may only grow."""
        if self.min_sample_rate > self.max_sample_rate:
            raise MisfitError(
                "min_sample_rate",
                "is larger than max_sample_rate",
                expected=f"at most max_sample_rate, {self.max_sample_rate:g}",
                received=f"{self.min_sample_rate:g}",
            )

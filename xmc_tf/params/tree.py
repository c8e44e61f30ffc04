from dataclasses import dataclass
from typing import ClassVar

from xmc_tf.common.numbers import LARGEST_SEED, MOST_THREADS
from xmc_tf.params.base import Params
from xmc_tf.params.values import MisfitError, knob


@dataclass(frozen=True)
class HierarchicalKMeansParams(Params):
    """Options of the label tree: labels are split into clusters by k-means, level by level."""

    pecos_name: ClassVar[str] = "pecos.xmc.base###HierarchicalKMeans.TrainParams"
    retired: ClassVar[tuple[str, ...]] = ("imbalanced_ratio", "imbalanced_depth")

    nr_splits: int = knob(
        16,
        low=2,
        help="number of children per inner node of the tree, preferably a power of 2; more children make fewer levels",
    )
    min_codes: int | None = knob(None, low=1, help="number of nodes of the top level (default: nr_splits)")
    max_leaf_size: int = knob(
        100, low=1, help="maximum number of labels per leaf; with the number of labels or more, there is no tree"
    )
    spherical: bool = knob(True, help="scale the k-means centroids to length 1 after each iteration")
    seed: int = knob(0, low=0, high=LARGEST_SEED, help="random seed")
    kmeans_max_iter: int = knob(20, low=1, help="maximum number of k-means iterations")
    threads: int = knob(-1, low=1, high=MOST_THREADS, also=(-1,), help="number of threads; -1: one per core")
    do_sample: bool = knob(False, help="cluster a sample of the labels at the upper levels; faster and less exact")
    max_sample_rate: float = knob(1.0, above=0, high=1, help="fraction of labels sampled at the last level")
    min_sample_rate: float = knob(0.1, above=0, high=1, help="fraction of labels sampled at the first levels")
    warmup_ratio: float = knob(0.4, low=0, high=1, help="fraction of levels that use min_sample_rate")

    def check_together(self) -> None:
        """Check that the sampling rate does not decrease."""
        if self.min_sample_rate > self.max_sample_rate:
            raise MisfitError(
                "min_sample_rate",
                "is larger than max_sample_rate",
                expected=f"at most max_sample_rate, {self.max_sample_rate:g}",
                received=f"{self.min_sample_rate:g}",
            )

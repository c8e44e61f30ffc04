"""Parameters of the label tree and of the linear rankers."""

from dataclasses import dataclass, field
from typing import ClassVar

from xmc_tf.common.numbers import LARGEST_SEED, MOST_THREADS
from xmc_tf.params import choices
from xmc_tf.params.base import Params
from xmc_tf.params.values import MisfitError, param_field


@dataclass(frozen=True)
class HierarchicalKMeansParams(Params):
    """Options of the label tree: labels are split into clusters by k-means, level by level."""

    pecos_name: ClassVar[str] = "pecos.xmc.base###HierarchicalKMeans.TrainParams"
    retired: ClassVar[tuple[str, ...]] = ("imbalanced_ratio", "imbalanced_depth")

    nr_splits: int = param_field(
        16, low=2,
        help="number of children per inner node of the tree, preferably a power of 2; more children make fewer levels",
    )  # fmt: skip
    min_codes: int | None = param_field(None, low=1, help="number of nodes of the top level (default: nr_splits)")
    max_leaf_size: int = param_field(
        100, low=1, help="maximum number of labels per leaf; if it is at least the number of labels, there is no tree"
    )
    spherical: bool = param_field(True, help="scale the k-means centroids to length 1 after each iteration")
    seed: int = param_field(0, low=0, high=LARGEST_SEED, help="random seed")
    kmeans_max_iter: int = param_field(20, low=1, help="maximum number of k-means iterations")
    threads: int = param_field(-1, low=1, high=MOST_THREADS, also=(-1,), help="number of threads; -1: one per core")
    do_sample: bool = param_field(
        False, help="cluster a sample of the labels at the upper levels; faster and less exact"
    )
    max_sample_rate: float = param_field(1.0, above=0, high=1, help="fraction of labels sampled at the last level")
    min_sample_rate: float = param_field(0.1, above=0, high=1, help="fraction of labels sampled at the first levels")
    warmup_ratio: float = param_field(0.4, low=0, high=1, help="fraction of levels that use min_sample_rate")

    def check_together(self) -> None:
        """Check that the sampling rate does not decrease."""
        if self.min_sample_rate > self.max_sample_rate:
            raise MisfitError(
                "min_sample_rate", "is larger than max_sample_rate",
                expected=f"at most max_sample_rate, {self.max_sample_rate:g}", received=f"{self.min_sample_rate:g}",
            )  # fmt: skip


@dataclass(frozen=True)
class LinearLevelParams(Params):
    """Training options of the linear models of one level of the tree."""

    pecos_name: ClassVar[str] = "pecos.xmc.base###MLModel.TrainParams"

    threshold: float = param_field(
        0.1, low=0, help="zero weights below this magnitude; larger makes the model smaller and less exact"
    )
    max_nonzeros_per_label: int | None = param_field(
        None, low=0,
        help="maximum number of weights per label (the largest are kept); smaller makes the model smaller and less "
        "exact (default and 0: no limit)",
    )  # fmt: skip
    solver_type: str = param_field("L2R_L2LOSS_SVC_DUAL", choices=choices.SOLVERS, help="loss and solver")
    Cp: float = param_field(
        1.0, above=0, help="weight of the loss of positive documents; larger fits them more closely"
    )
    Cn: float = param_field(
        1.0, above=0, help="weight of the loss of negative documents; larger fits them more closely"
    )
    max_iter: int = param_field(100, low=1, help="maximum number of passes of the solver over the data")
    eps: float = param_field(0.1, above=0, help="tolerance of the solver; smaller is more exact and slower")
    bias: float = param_field(1.0, help="value of the constant bias feature; 0 or less: no bias")
    threads: int = param_field(-1, low=1, high=MOST_THREADS, also=(-1,), help="number of threads; -1: one per core")
    verbose: int = param_field(0, low=0, help="has no effect; accepted for compatibility with PECOS")
    newton_eps: float = param_field(0.01, above=0, help="tolerance of L2R_L2LOSS_SVC_PRIMAL (solved in its dual form)")

    @property
    def nonzeros_limit(self) -> int | None:
        """Maximum number of weights per label, or None for no limit."""
        return self.max_nonzeros_per_label or None


@dataclass(frozen=True)
class LinearLevelPredParams(Params):
    """Prediction options of one level of the tree."""

    pecos_name: ClassVar[str] = "pecos.xmc.base###MLModel.PredParams"

    only_topk: int = param_field(
        20, low=1,
        help="number of best nodes kept: the beam size (larger is slower and more exact), and at the last level the "
        "number of labels",
    )  # fmt: skip
    post_processor: str = param_field(
        "l3-hinge", choices=choices.POST_PROCESSORS,
        help="function applied to scores before they are combined with their parent's",
    )  # fmt: skip


@dataclass(frozen=True)
class LinearChainParams(Params):
    """Training options of the levels of the tree, from the top down."""

    pecos_name: ClassVar[str] = "pecos.xmc.base###HierarchicalMLModel.TrainParams"

    neg_mining_chain: str | tuple[str, ...] = param_field(
        "tfn", parse=choices.ranker_negatives, help="negative sampling: tfn, man, usn, or a sum such as tfn+man"
    )
    model_chain: LinearLevelParams | tuple[LinearLevelParams, ...] = field(
        default_factory=LinearLevelParams, metadata={"help": "parameters of the levels"}
    )


@dataclass(frozen=True)
class LinearChainPredParams(Params):
    """Prediction options of the levels of the tree, from the top down."""

    pecos_name: ClassVar[str] = "pecos.xmc.base###HierarchicalMLModel.PredParams"

    model_chain: LinearLevelPredParams | tuple[LinearLevelPredParams, ...] = field(
        default_factory=LinearLevelPredParams, metadata={"help": "parameters of the levels"}
    )


@dataclass(frozen=True)
class RankerParams(Params):
    """Training options of the rankers over the whole tree."""

    pecos_name: ClassVar[str] = "pecos.xmc.xlinear.model###XLinearModel.TrainParams"

    mode: str = param_field("full-model", choices=choices.RANKER_MODES, help="part of the tree to train")
    ranker_level: int = param_field(
        1, low=1, help="number of last levels that form the ranker; the levels above form the matcher"
    )
    nr_splits: int = param_field(16, low=2, help="children per node of the levels added above an incomplete tree")
    min_codes: int | None = param_field(None, low=1, help="number of nodes of the top level added (default: nr_splits)")
    shallow: bool = param_field(False, help="add no levels above an incomplete tree")
    rel_mode: str = param_field(
        "disable", choices=choices.RELEVANCE_MODES,
        help="levels at which relevance weights the loss: none (disable), all (induce), or the last (ranker-only)",
    )  # fmt: skip
    rel_norm: str = param_field(
        "no-norm", choices=choices.RELEVANCE_NORMS, help="normalization of relevance per document"
    )
    hlm_args: LinearChainParams = field(
        default_factory=LinearChainParams, metadata={"help": "parameters of the levels"}
    )


@dataclass(frozen=True)
class RankerPredParams(Params):
    """Prediction options of the rankers over the whole tree."""

    pecos_name: ClassVar[str] = "pecos.xmc.xlinear.model###XLinearModel.PredParams"

    hlm_args: LinearChainPredParams = field(
        default_factory=LinearChainPredParams, metadata={"help": "parameters of the levels"}
    )

"""Parameters of the linear rankers."""

from dataclasses import dataclass, field
from typing import ClassVar

from xmc_tf.common.numbers import MOST_THREADS
from xmc_tf.params import choices
from xmc_tf.params.base import Params
from xmc_tf.params.values import knob


@dataclass(frozen=True)
class LinearLevelParams(Params):
    """How the linear models of one level of the tree are trained."""

    peer_name: ClassVar[str] = "pecos.xmc.base###MLModel.TrainParams"

    threshold: float = knob(0.1, low=0, help="drop weights smaller than this")
    max_nonzeros_per_label: int | None = knob(
        None, low=0, help="keep at most so many weights a label, the largest; null or 0 for all"
    )
    solver_type: str = knob("L2R_L2LOSS_SVC_DUAL", choices=choices.SOLVERS, help="loss and solver")
    Cp: float = knob(1.0, above=0, help="weight of the positives' loss")
    Cn: float = knob(1.0, above=0, help="weight of the negatives' loss")
    max_iter: int = knob(100, low=1, help="most passes of the solver over the data")
    eps: float = knob(0.1, above=0, help="the solver stops when it is this near to the optimum")
    bias: float = knob(1.0, help="value of the added constant feature; 0 or less for none")
    threads: int = knob(-1, low=1, high=MOST_THREADS, also=(-1,), help="threads; -1 for one a core")
    verbose: int = knob(0, low=0, help="how much the solver tells")
    newton_eps: float = knob(0.01, above=0, help="where Newton's method stops (primal solver only)")

    @property
    def nonzeros_limit(self) -> int | None:
        """How many weights a label may keep, None for all of them."""
        return self.max_nonzeros_per_label or None


@dataclass(frozen=True)
class LinearLevelPredParams(Params):
    """How one level of the tree predicts."""

    peer_name: ClassVar[str] = "pecos.xmc.base###MLModel.PredParams"

    only_topk: int = knob(20, low=1, help="best nodes that are kept: the beam, at the last level the answer")
    post_processor: str = knob(
        "l3-hinge", choices=choices.POST_PROCESSORS, help="what becomes of a score before it is chained"
    )


@dataclass(frozen=True)
class LinearChainParams(Params):
    """How the levels of the tree are trained, one after the other."""

    peer_name: ClassVar[str] = "pecos.xmc.base###HierarchicalMLModel.TrainParams"

    neg_mining_chain: str | tuple[str, ...] = knob(
        "tfn", parse=choices.ranker_negatives, help="negatives: tfn, man, usn or a sum of them"
    )
    model_chain: LinearLevelParams | tuple[LinearLevelParams, ...] = field(
        default_factory=LinearLevelParams, metadata={"help": "parameters of the levels"}
    )


@dataclass(frozen=True)
class LinearChainPredParams(Params):
    """How the levels of the tree predict, one after the other."""

    peer_name: ClassVar[str] = "pecos.xmc.base###HierarchicalMLModel.PredParams"

    model_chain: LinearLevelPredParams | tuple[LinearLevelPredParams, ...] = field(
        default_factory=LinearLevelPredParams, metadata={"help": "parameters of the levels"}
    )


@dataclass(frozen=True)
class RankerParams(Params):
    """How the rankers over the whole tree are trained."""

    peer_name: ClassVar[str] = "pecos.xmc.xlinear.model###XLinearModel.TrainParams"

    mode: str = knob("full-model", choices=choices.RANKER_MODES, help="which part of the tree is trained")
    ranker_level: int = knob(1, low=1, help="levels above the labels where matcher and ranker part")
    nr_splits: int = knob(16, low=2, help="children of each node added above a tree that is not complete")
    min_codes: int | None = knob(None, low=1, help="nodes of the top level added; null for nr_splits")
    shallow: bool = knob(False, help="add no levels above a tree that is not complete")
    rel_mode: str = knob(
        "disable", choices=choices.RELEVANCE_MODES, help="where the relevance of a label weighs its loss"
    )
    rel_norm: str = knob("no-norm", choices=choices.RELEVANCE_NORMS, help="how relevance is scaled per document")
    hlm_args: LinearChainParams = field(
        default_factory=LinearChainParams, metadata={"help": "parameters of the levels"}
    )


@dataclass(frozen=True)
class RankerPredParams(Params):
    """How the rankers over the whole tree predict."""

    peer_name: ClassVar[str] = "pecos.xmc.xlinear.model###XLinearModel.PredParams"

    hlm_args: LinearChainPredParams = field(
        default_factory=LinearChainPredParams, metadata={"help": "parameters of the levels"}
    )

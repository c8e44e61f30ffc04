"""Parameters of the whole model: tree, encoder, rankers."""

from dataclasses import dataclass, field
from typing import ClassVar

from xmc_tf.params.base import Params
from xmc_tf.params.linear import RankerParams, RankerPredParams
from xmc_tf.params.matcher import MatcherParams, MatcherPredParams
from xmc_tf.params.tree import HierarchicalKMeansParams
from xmc_tf.params.values import knob


@dataclass(frozen=True)
class XTransformerParams(Params):
    """How the whole model is trained."""

    peer_name: ClassVar[str] = "pecos.xmc.xtransformer.model###XTransformer.TrainParams"
    retired: ClassVar[tuple[str, ...]] = ("save_emb_dir",)

    preliminary_indexer_params: HierarchicalKMeansParams = field(
        default_factory=HierarchicalKMeansParams,
        metadata={"help": "the tree that the encoder is fine-tuned on"},
    )
    refined_indexer_params: HierarchicalKMeansParams = field(
        default_factory=HierarchicalKMeansParams,
        metadata={"help": "the tree that the rankers are trained on"},
    )
    matcher_params_chain: MatcherParams | tuple[MatcherParams, ...] = field(
        default_factory=MatcherParams, metadata={"help": "fine-tuning of the levels"}
    )
    ranker_params: RankerParams = field(default_factory=RankerParams, metadata={"help": "the rankers"})
    do_fine_tune: bool = knob(True, help="fine-tune the encoder; otherwise it is used as it comes")
    only_encoder: bool = knob(False, help="train no rankers")
    fix_clustering: bool = knob(False, help="keep the first tree for the rankers")
    max_match_clusters: int = knob(32768, low=1, help="fine-tune on levels of at most so many clusters")
    # What the peer does not have.
    embedding_weight: float | None = knob(
        None,
        above=0,
        help="length of the encoder's vector beside the other features, whose length is 1; null for 0.5 where it is "
        "fine-tuned with cross-entropy, which fits it to the training documents, and 1 where it is not",
    )

    @property
    def vector_length(self) -> float:
        """Length of the encoder's vector beside the other features."""
        if self.embedding_weight is not None:
            return self.embedding_weight
        return 0.5 if self.do_fine_tune and self.head_gives_probabilities else 1.0

    @property
    def head_gives_probabilities(self) -> bool:
        """Whether the label head learns scores that can be averaged with the rankers'; those of hinges are margins."""
        chain = self.matcher_params_chain
        last = chain[-1] if isinstance(chain, tuple) else chain
        return last.loss_function == "cross-entropy"


@dataclass(frozen=True)
class XTransformerPredParams(Params):
    """How the whole model predicts."""

    peer_name: ClassVar[str] = "pecos.xmc.xtransformer.model###XTransformer.PredParams"

    matcher_params_chain: MatcherPredParams | tuple[MatcherPredParams, ...] = field(
        default_factory=MatcherPredParams, metadata={"help": "prediction of the fine-tuned levels"}
    )
    ranker_params: RankerPredParams = field(
        default_factory=RankerPredParams, metadata={"help": "prediction of the rankers"}
    )

from dataclasses import dataclass, field
from typing import ClassVar

from xmc_tf.params.base import Params
from xmc_tf.params.linear import HierarchicalKMeansParams, RankerParams, RankerPredParams
from xmc_tf.params.matcher import MatcherParams, MatcherPredParams
from xmc_tf.params.tfidf import TfidfParams
from xmc_tf.params.values import MisfitError, param_field


@dataclass(frozen=True)
class XRLinearParams(Params):
    """Options of a linear model: rankers, label trees and TF-IDF.

    Example:
        >>> XRLinearParams(tree=HierarchicalKMeansParams(nr_splits=32), tfidf=TfidfParams(ngram_max=1))
    """

    ranker: RankerParams = field(default_factory=RankerParams, metadata={"help": "training options of the rankers"})
    prediction: RankerPredParams = field(
        default_factory=RankerPredParams, metadata={"help": "prediction options of the rankers"}
    )
    tree: HierarchicalKMeansParams | tuple[HierarchicalKMeansParams, ...] = field(
        default_factory=HierarchicalKMeansParams,
        metadata={"help": "options of the label tree; a list makes several trees, whose scores are averaged"},
    )
    tfidf: TfidfParams = field(
        default_factory=TfidfParams, metadata={"help": "options of TF-IDF, for a model that reads texts"}
    )

    @property
    def trees(self) -> tuple[HierarchicalKMeansParams, ...]:
        """Options of each label tree."""
        return self.tree if isinstance(self.tree, tuple) else (self.tree,)


@dataclass(frozen=True)
class XTransformerParams(Params):
    """Training options of an XR-Transformer: trees, encoder, label head and rankers."""

    pecos_name: ClassVar[str] = "pecos.xmc.xtransformer.model###XTransformer.TrainParams"
    retired: ClassVar[tuple[str, ...]] = ("save_emb_dir",)

    preliminary_indexer_params: HierarchicalKMeansParams = field(
        default_factory=HierarchicalKMeansParams, metadata={"help": "tree for fine-tuning the encoder"}
    )
    refined_indexer_params: HierarchicalKMeansParams | tuple[HierarchicalKMeansParams, ...] = field(
        default_factory=HierarchicalKMeansParams,
        metadata={"help": "tree for the rankers; a list makes several trees, whose scores are averaged"},
    )
    matcher_params_chain: MatcherParams | tuple[MatcherParams, ...] = field(
        default_factory=MatcherParams, metadata={"help": "fine-tuning options of the levels"}
    )
    ranker_params: RankerParams = field(
        default_factory=RankerParams, metadata={"help": "training options of the rankers"}
    )
    do_fine_tune: bool = param_field(True, help="fine-tune the encoder; if false, use the pre-trained weights")
    only_encoder: bool = param_field(False, help="do not train rankers")
    fix_clustering: bool = param_field(False, help="use the fine-tuning tree for the rankers too")
    max_match_clusters: int = param_field(32768, low=1, help="fine-tune only on levels with at most this many clusters")
    # Options that PECOS does not have.
    probabilities: bool | None = param_field(
        None,
        help="predict calibrated probabilities, learned from held-out documents, instead of scores (default: true if "
        "label names are used, or if the encoder is fine-tuned with cross-entropy on 200 or more documents)",
    )  # fmt: skip
    label_names: bool | None = param_field(
        None,
        help="find label names in texts, as evidence for calibrated probabilities; improves predictions, but can "
        "double the training time of the rankers (default: true if there are label names)",
    )  # fmt: skip
    embedding_weight: float | None = param_field(
        None, above=0,
        help="length of the embedding in the rankers' features; the other features have length 1 (default: 0.5 if the "
        "encoder is fine-tuned with cross-entropy, which fits embeddings to the training documents; else 1)",
    )  # fmt: skip

    word_trees: int = param_field(
        0, low=0,
        help="number of trees, the last ones, whose rankers read words alone: an encoder that knows a language badly "
        "then harms less (default: none; with an effort, half of its trees)",
    )  # fmt: skip

    def check_together(self) -> None:
        """Check that all levels train the same layers of the encoder, because lower layers are computed once."""
        chain = self.matcher_params_chain if isinstance(self.matcher_params_chain, tuple) else ()
        if len(found := list(dict.fromkeys(level.train_layers for level in chain))) > 1:
            raise MisfitError(
                "matcher_params_chain", "has different values of train_layers", expected="the same for all levels",
                received=", ".join(found),
            )  # fmt: skip

    @property
    def ranker_trees(self) -> tuple[HierarchicalKMeansParams, ...]:
        """Options of each tree of the rankers."""
        trees = self.refined_indexer_params
        return trees if isinstance(trees, tuple) else (trees,)

    @property
    def vector_length(self) -> float:
        """Length to which the embedding is scaled in the rankers' features."""
        if self.embedding_weight is not None:
            return self.embedding_weight
        return 0.5 if self.do_fine_tune and self.head_gives_probabilities else 1.0

    @property
    def head_gives_probabilities(self) -> bool:
        """True if the label head's scores are probabilities, so that they can be averaged with the rankers'."""
        chain = self.matcher_params_chain
        last = chain[-1] if isinstance(chain, tuple) else chain
        return last.loss_function == "cross-entropy"


@dataclass(frozen=True)
class XTransformerPredParams(Params):
    """Prediction options of an XR-Transformer."""

    pecos_name: ClassVar[str] = "pecos.xmc.xtransformer.model###XTransformer.PredParams"

    matcher_params_chain: MatcherPredParams | tuple[MatcherPredParams, ...] = field(
        default_factory=MatcherPredParams, metadata={"help": "prediction options of the fine-tuned levels"}
    )
    ranker_params: RankerPredParams = field(
        default_factory=RankerPredParams, metadata={"help": "prediction options of the rankers"}
    )

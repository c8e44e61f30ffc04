"""Parameters of the whole linear model: features, tree, rankers."""

from dataclasses import dataclass, field

from xmc_tf.params.base import Params
from xmc_tf.params.linear import RankerParams, RankerPredParams
from xmc_tf.params.tfidf import TfidfParams
from xmc_tf.params.tree import HierarchicalKMeansParams


@dataclass(frozen=True)
class XRLinearParams(Params):
    """Options of the whole linear model.

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

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from xmc_tf.data import Features, Texts, as_features
from xmc_tf.data.vocabularies import LabelHierarchy
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.models.folder import load_tfidf
from xmc_tf.models.growing.trained_documents import TrainedDocuments
from xmc_tf.models.growing.training_data import TrainingData
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.rankers.ensemble import Rankers, trees_of
from xmc_tf.tree import LabelTree

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf


@dataclass(eq=False)
class LinearParts:
    """The parts of a linear model."""

    ranker: Rankers
    tree: LabelTree
    names: list[str] | None = None
    metadata: ModelMetadata = field(default_factory=ModelMetadata)
    folder: Path | None = None
    own_tfidf: "Tfidf | None" = None
    evidence: ProbabilityModel | None = None
    more_trees: Sequence[LabelTree] = ()
    own_training: TrainingData | None = None  # own_…: parts of a model that was not loaded from a folder
    hierarchy: LabelHierarchy | None = None
    own_documents: TrainedDocuments | None = None

    def __repr__(self) -> str:
        of = f" of {self.folder}" if self.folder else ""
        reads = "text" if self.reads_text else "features"
        size = f"{self.ranker.depth} levels" if not self.more_trees else f"{len(self.more_trees) + 1} trees"
        return f"{type(self).__name__}({self.nr_labels:,} labels, {size}, reads {reads}{of})"

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the whole model with its vectorizer, so that its folder is not needed."""
        state = {name: value for name, value in vars(self).items() if name != "tfidf"}
        return state | {"own_tfidf": self.tfidf if self.reads_text else None}

    @property
    def nr_labels(self) -> int:
        """Number of labels, including those that were added after training."""
        return self.ranker.nr_labels if self.evidence is None else self.evidence.nr_labels

    @property
    def reads_text(self) -> bool:
        """Whether the model contains a vectorizer and can read texts."""
        return self.own_tfidf is not None or (self.folder is not None and (self.folder / "features").is_dir())

    @cached_property
    def tfidf(self) -> "Tfidf":
        """The vectorizer; loading it loads TensorFlow."""
        if self.own_tfidf is not None:
            return self.own_tfidf
        return load_tfidf(self.folder / "features" if self.folder else None, self.metadata)

    @property
    def training_data(self) -> TrainingData | None:
        """Features and labels of the training documents, if the model keeps them; read again with every use."""
        if self.own_training is not None:
            return self.own_training
        return None if self.folder is None else TrainingData.load(self.folder)

    @property
    def trained_documents(self) -> TrainedDocuments | None:
        """The documents that the model was trained on, if they were a table's; read again with every use."""
        return self.own_documents or TrainedDocuments.in_model(self.folder)

    def knowing(self, documents: TrainedDocuments) -> Self:
        """Return the model with the documents that it was trained on.

        Args:
            documents: these documents.
        """
        return replace(self, own_documents=documents)

    def features(self, texts: Texts, threads: int = -1, quiet: bool = False) -> Features:
        """Return the TF-IDF features of texts.

        Args:
            texts: documents, one text each.
            threads: number of threads; -1: one per core.
            quiet: whether to hide progress.
        """
        return as_features(self.tfidf.transform(texts, threads=threads, quiet=quiet))

    @property
    def only_topk(self) -> int:
        """Number of labels per document that are predicted by default."""
        return self.ranker.only_topk

    @property
    def post_processor(self) -> str:
        """The post-processor of the rankers' scores."""
        return trees_of(self.ranker)[0].levels[-1].pred_params.post_processor

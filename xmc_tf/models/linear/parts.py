import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from xmc_tf.data import Features, Texts, as_features
from xmc_tf.data.vocabularies import LabelHierarchy
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.models.folder import load_tfidf, write_model_folder
from xmc_tf.models.incremental.training_data import TrainedDocuments, TrainingData
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.rankers.ensemble import Rankers, trees_of
from xmc_tf.store.models import DOCUMENTS, ENSEMBLE, FEATURES, HIERARCHY, RANKER, TRAINING, TREE
from xmc_tf.tree import LabelTree, save_chain

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf


_LOG = logging.getLogger(__name__)


@dataclass(eq=False)
class LinearParts:
    """The parts of a linear model: rankers, trees, label names, metadata and optional parts."""

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
        """Pickle the vectorizer too, so that prediction needs no folder; training data stored there are not pickled."""
        state = {name: value for name, value in vars(self).items() if name != "tfidf"}
        return state | {"own_tfidf": self.tfidf if self.reads_text else None}

    @property
    def nr_labels(self) -> int:
        """Number of labels, including those that were added after training."""
        return self.ranker.nr_labels if self.evidence is None else self.evidence.nr_labels

    @property
    def reads_text(self) -> bool:
        """Whether the model contains a vectorizer and can therefore read texts."""
        return self.own_tfidf is not None or (self.folder is not None and (self.folder / "features").is_dir())

    @cached_property
    def tfidf(self) -> "Tfidf":
        """The vectorizer; loading it imports TensorFlow."""
        if self.own_tfidf is not None:
            return self.own_tfidf
        return load_tfidf(self.folder / "features" if self.folder else None, self.metadata)

    @property
    def training_data(self) -> TrainingData | None:
        """Features and labels of the training documents, if the model keeps them; read from disk at each access."""
        if self.own_training is not None:
            return self.own_training
        return None if self.folder is None else TrainingData.load(self.folder)

    @property
    def trained_documents(self) -> TrainedDocuments | None:
        """The documents that the model was trained on, if they were texts; read from disk at each access."""
        place = None if self.folder is None else self.folder / DOCUMENTS
        return self.own_documents or (TrainedDocuments.load(place) if place is not None and place.is_dir() else None)

    def knowing(self, documents: TrainedDocuments) -> Self:
        """Return the model with a record of the documents that it was trained on.

        Args:
            documents: the training documents.
        """
        return replace(self, own_documents=documents)

    def features(self, texts: Texts, threads: int = -1, quiet: bool = False) -> Features:
        """Return the TF-IDF features of texts.

        Args:
            texts: the documents, one text each.
            threads: number of threads; -1: one per core.
            quiet: whether to hide the progress bar.
        """
        return as_features(self.tfidf.transform(texts, threads=threads, quiet=quiet))

    @property
    def only_topk(self) -> int:
        """Default number of labels to predict per document."""
        return self.ranker.only_topk

    @property
    def post_processor(self) -> str:
        """Name of the function that turns the rankers' raw scores into final scores."""
        return trees_of(self.ranker)[0].levels[-1].pred_params.post_processor


def write_model(
    folder: str | Path,
    model: LinearParts,
    write_rankers: Sequence[Callable[[Path], object]],  # of each tree, to a path
    write_tfidf: Callable[[Path], object] | None,
) -> None:
    """Write the folder of a linear model atomically. An existing model there is replaced; other files are kept.

    The first tree and its rankers are in ``tree/`` and ``ranker/``. Each further tree has the same two folders in
    ``ensemble/1``, ``ensemble/2`` and so on.
    """
    training, documents = model.training_data, model.trained_documents
    if training is None and (Path(folder) / TRAINING).is_dir():
        _LOG.warning("%s: the training data of the replaced model is removed; the new model keeps none", folder)

    def write_further(place: Path) -> None:
        for number, (tree, write_ranker) in enumerate(zip(model.more_trees, write_rankers[1:], strict=True), start=1):
            save_chain(place / str(number) / TREE, tree.to_chain())
            write_ranker(place / str(number) / RANKER)

    parts: dict[str, Callable[[Path], object] | None] = {
        TREE: lambda place: save_chain(place, model.tree.to_chain()),
        RANKER: write_rankers[0],
        FEATURES: write_tfidf,
        ENSEMBLE: write_further if model.more_trees else None,
        TRAINING: None if training is None else training.save,
        HIERARCHY: None if model.hierarchy is None else model.hierarchy.save,
        DOCUMENTS: None if documents is None else documents.save,
        **({} if model.evidence is None else model.evidence.parts),
    }
    given = {name: write for name, write in parts.items() if write is not None}
    write_model_folder(folder, given, model.names, model.metadata)

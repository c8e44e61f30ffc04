"""Write and load the folder of a linear model.

The first tree and its rankers are in ``tree/`` and ``ranker/``; further ones in ``ensemble/1``, ``ensemble/2`` …, each
with the same two folders.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from xmc_tf.common.errors import InputError
from xmc_tf.common.folders.model_parts import DOCUMENTS, ENSEMBLE, FEATURES, HIERARCHY, RANKER, TRAINING, TREE
from xmc_tf.data.vocabularies import LabelHierarchy
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.models.folder import read_metadata, read_names, write_model_folder
from xmc_tf.models.growing.trained_documents import TrainedDocuments
from xmc_tf.models.growing.training_data import TrainingData
from xmc_tf.models.linear.parts import LinearParts
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.models.parts import Parts
from xmc_tf.params import RankerParams
from xmc_tf.rankers.xlinear import XLinear
from xmc_tf.tree import LabelTree, save_chain

_LOG = logging.getLogger(__name__)
_Model = TypeVar("_Model", bound=LinearParts)


def write_model(
    folder: str | Path,
    trees: Sequence[LabelTree],
    names: list[str] | None,
    metadata: ModelMetadata,
    write_rankers: Sequence[Callable[[Path], object]],
    write_tfidf: Callable[[Path], object] | None,
    evidence: ProbabilityModel | None = None,
    training: TrainingData | None = None,
    hierarchy: LabelHierarchy | None = None,
    documents: TrainedDocuments | None = None,
) -> None:
    """Write the folder of a linear model, completely or not at all; an older model there is replaced, other files stay.

    ``write_rankers`` has a function for each tree that writes its rankers to a path.
    """
    if training is None and (Path(folder) / TRAINING).is_dir():
        _LOG.warning("%s: the training data of the model that is replaced is removed; this one keeps none", folder)

    def write_further(place: Path) -> None:
        for number, (tree, write_ranker) in enumerate(zip(trees[1:], write_rankers[1:], strict=True), start=1):
            save_chain(place / str(number) / TREE, tree.to_chain())
            write_ranker(place / str(number) / RANKER)

    parts: dict[str, Callable[[Path], object]] = {
        TREE: lambda place: save_chain(place, trees[0].to_chain()),
        RANKER: write_rankers[0],
    }
    if write_tfidf:
        parts[FEATURES] = write_tfidf
    if len(trees) > 1:
        parts[ENSEMBLE] = write_further
    if evidence is not None:
        parts |= evidence.parts
    if training is not None:
        parts[TRAINING] = training.save
    if hierarchy is not None:
        parts[HIERARCHY] = hierarchy.save
    if documents is not None:
        parts[DOCUMENTS] = documents.save
    write_model_folder(folder, parts, names, metadata)


def load_model(kind: type[_Model], folder: Path) -> _Model:
    """Load a linear model, or rankers that PECOS trained."""
    if not (folder / "params.json").exists() and (folder / "param.json").exists():
        from xmc_tf.rankers.levels import whole_chain  # it loads what only training needs

        ranker = XLinear.load(folder)
        clusters = [level.clusters for level in ranker.levels]
        return kind(ranker, LabelTree.from_chain(whole_chain(clusters, ranker.nr_labels, RankerParams())))
    metadata = read_metadata(folder)
    if metadata.model == "XTransformer":
        raise InputError(
            f"{folder} is an XR-Transformer model",
            expected="a linear model, as xmc_tf.linear.train writes it",
            fix="use python -m xmc_tf.predict (in Python: XTransformer.load); its linear rankers alone are in "
            f"{folder / 'ranker'}",
        )
    parts = Parts.at(folder, metadata)
    nr_labels = parts.ranker.nr_labels if parts.evidence is None else parts.evidence.nr_labels
    names = read_names(folder, nr_labels)
    return kind(
        parts.ranker, parts.tree, names, metadata, folder, evidence=parts.evidence, more_trees=parts.more_trees,
        hierarchy=parts.hierarchy,
    )  # fmt: skip

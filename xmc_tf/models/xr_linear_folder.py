"""Writing the folder of a linear model from its parts.

The first tree and its rankers are in ``tree/`` and ``ranker/``; further ones in ``ensemble/1``, ``ensemble/2`` …, each
with the same two folders.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from xmc_tf.common.folders.placing import placed_folder
from xmc_tf.fusion import Evidence
from xmc_tf.models.folder import ENSEMBLE, MODEL, write_metadata, write_names
from xmc_tf.models.growing.training_data import TrainingData
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.tree import LabelTree, save_chain


def write_model(
    folder: str | Path,
    trees: Sequence[LabelTree],
    names: list[str] | None,
    metadata: ModelMetadata,
    write_rankers: Sequence[Callable[[Path], object]],
    write_tfidf: Callable[[Path], object] | None,
    evidence: Evidence | None = None,
    training: TrainingData | None = None,
) -> None:
    """Write the folder of a linear model, completely or not at all; an older model there is replaced.

    Files in the folder that are not part of a model stay.

    Args:
        folder: the model's folder.
        trees: the label trees.
        names: label names, or None.
        metadata: the model metadata for ``params.json``.
        write_rankers: for each tree, writes the folder of its rankers to a path.
        write_tfidf: writes the folder of the vectorizer to a path; None if there is no vectorizer.
        evidence: label names and fusion, or None.
        training: the training data to keep, or None.
    """
    with placed_folder(folder, MODEL) as part:
        for number, (tree, write_ranker) in enumerate(zip(trees, write_rankers, strict=True)):
            place = part if number == 0 else part / ENSEMBLE / str(number)
            save_chain(place / "tree", tree.to_chain())
            write_ranker(place / "ranker")
        if write_tfidf:
            write_tfidf(part / "features")
        if evidence is not None:
            evidence.save(part)
        if training is not None:
            training.save(part)
        write_names(part, names)
        write_metadata(part, metadata)

"""The folder of a linear model: writing it from its parts, and loading it.

The first tree and its rankers are in ``tree/`` and ``ranker/``; further ones in ``ensemble/1``, ``ensemble/2`` …, each
with the same two folders.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from xmc_tf.common.errors import InputError
from xmc_tf.common.folders.placing import placed_folder
from xmc_tf.fusion import Evidence
from xmc_tf.linear.ensemble import rankers_of
from xmc_tf.linear.xlinear import XLinear
from xmc_tf.models.folder import (
    ENSEMBLE,
    MODEL,
    check_parts,
    further_trees,
    nr_dense,
    read_metadata,
    read_names,
    write_metadata,
    write_names,
)
from xmc_tf.models.growing.training_data import TRAINING, TrainingData
from xmc_tf.models.linear.parts import LinearParts
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.params import RankerParams
from xmc_tf.tree import LabelTree, load_chain, save_chain

_LOG = logging.getLogger(__name__)
_Model = TypeVar("_Model", bound=LinearParts)


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
    if training is None and (Path(folder) / TRAINING).is_dir():
        _LOG.warning("%s: the training data of the model that is replaced is removed; this one keeps none", folder)
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


def load_model(kind: type[_Model], folder: Path) -> _Model:
    """Load a linear model, or rankers that PECOS trained, from a folder.

    Args:
        kind: the class of the model.
        folder: a model of xmc_tf, or PECOS's folder of an XLinear model.
    """
    if not (folder / "params.json").exists() and (folder / "param.json").exists():
        from xmc_tf.linear.modes import whole_chain  # it loads what only training needs

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
    rankers, trees = [], []
    for place in [folder, *further_trees(folder / ENSEMBLE, metadata)]:
        ranker = XLinear.load(place / "ranker", nr_dense=nr_dense(metadata, folder))
        tree = load_chain(place / "tree")
        found = (
            ("ranker", "nr_labels", ranker.nr_labels),
            ("ranker", "nr_features", ranker.nr_features),
            ("tree", "nr_labels", tree.nr_labels),
        )
        check_parts(place, metadata, found)
        rankers.append(ranker)
        trees.append(tree)
    evidence = Evidence.load(folder)
    nr_labels = rankers[0].nr_labels if evidence is None else evidence.names.nr_labels
    names = read_names(folder, nr_labels)
    return kind(rankers_of(rankers), trees[0], names, metadata, folder, evidence=evidence, more_trees=trees[1:])

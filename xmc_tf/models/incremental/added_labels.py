"""Add labels to a trained model that finds labels by their names."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import as_features
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.label_names import label_vocabulary
from xmc_tf.models.folder import link_part, read_metadata, read_names, write_model_folder
from xmc_tf.models.incremental.documents import appended
from xmc_tf.models.incremental.training_data import TrainingData
from xmc_tf.models.metadata import ADDED
from xmc_tf.models.parts import LazyModelFolder
from xmc_tf.models.prediction import embedded
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.store.checksums import verify

_LOG = logging.getLogger(__name__)
_SHOWN = 3


def add_labels(model: str | Path, lines: Sequence[str], folder: str | Path) -> int:
    """Write a copy of a model with additional labels, found by their names; return the new number of labels.

    ``lines`` contains one line per new label: its name, then alternative names after tabs. The new labels are numbered
    after the existing ones. If a linear model was trained on its label names and has kept its training data, the new
    names are appended to it as documents. Otherwise, nothing is trained, and unchanged files are hard links.
    """
    model, folder = Path(model), Path(folder)
    metadata = read_metadata(model)
    evidence, names = ProbabilityModel.load(model), read_names(model, metadata.nr_labels)
    if evidence is None or evidence.names is None or names is None:
        raise InputError(
            f"{model}: labels cannot be added to this model",
            expected="a model that was trained on texts with label names as evidence",
            received="a model that does not look for names in texts",
            fix="train it with --labels and --label-names true",
        )
    if folder.exists() and folder.samefile(model):
        raise InputError(
            f"{folder} is the model itself", expected="another folder", fix="choose another folder with -o"
        )
    added = label_vocabulary(lines).preferred
    check_new(added, names)
    if metadata.model == "XLinear" and evidence.fusion.names:
        linear = XRLinear.load(model)
        if linear.training_data is not None:
            _with_names(linear, linear.training_data, lines).save(folder)
            return metadata.nr_labels + len(added)
    encoder = LazyModelFolder({"encoder": model / "encoder"}, metadata, where=model)
    evidence = evidence.with_added(lines, partial(embedded, encoder) if evidence.fusion.similarity else None)

    def link(source: Path, target: Path) -> None:
        verify(source)
        link_part(source, target)

    parts: dict[str, Callable[[Path], object]] = {
        name: partial(link, source) for name, source in LazyModelFolder.at(model, metadata).parts.items()
    }
    parts |= evidence.parts
    metadata = metadata.replace(**{ADDED: int(metadata.content.get(ADDED, 0)) + len(added)})
    write_model_folder(folder, parts, [*names, *added], metadata)
    _LOG.info("%s: %s labels, %s of them added now", folder, f"{evidence.nr_labels:,}", f"{len(added):,}")
    return evidence.nr_labels


def _with_names(model: XRLinear, training: TrainingData, lines: Sequence[str]) -> XRLinear:
    """Return the model after appending the names of new labels, without any other documents."""
    none = as_features(csr_matrix((0, training.X.shape[1]), dtype=np.float32))
    labels = csr_matrix((0, model.nr_labels + len(lines)), dtype=np.float32)
    return appended(model, training, none, labels, lines)


def check_new(added: Sequence[str], names: Sequence[str]) -> None:
    """Check that the model has none of these names and that none is repeated, ignoring case."""
    if not added:
        raise InputError("there is no label to add", expected="at least one name")
    there = {_key(name): f"label {number:,} of the model" for number, name in enumerate(names)}
    doubles = []
    for line, name in enumerate(added, start=1):
        if _key(name) in there:
            doubles.append(f"line {line:,}: {name[:60]!r} is {there[_key(name)]}")
        there.setdefault(_key(name), f"in line {line:,}")
    if doubles:
        more = f", and {len(doubles) - _SHOWN:,} more" if len(doubles) > _SHOWN else ""
        raise InputError(
            f"labels to add: {len(doubles):,} of {len(added):,} names are not new",
            expected="names that the model does not have, each once", received="; ".join(doubles[:_SHOWN]) + more,
            fix="remove these lines, or leave them out with --skip-known",
        )  # fmt: skip


def only_new(lines: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the lines whose names the model does not have, without duplicates."""
    seen = {_key(name) for name in names}
    kept = []
    for line, name in zip(lines, label_vocabulary(lines).preferred, strict=True):
        if _key(name) not in seen:
            seen.add(_key(name))
            kept.append(line)
    return kept


def _key(name: str) -> str:
    return " ".join(name.casefold().split())

"""The parts that all model folders have in common (``params.json``, label names, vectorizer), and their checks."""

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_unchanged_json
from xmc_tf.common.numbers import MOST_TREES
from xmc_tf.common.progress import Progress
from xmc_tf.common.regular import open_regular
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.store.checksums import (
    MODEL_FORMAT,
    MODEL_HEADER,
    checksum_of,
    is_unchanged,
    record_files,
    verify,
)
from xmc_tf.store.models import ENCODER, LABELS, MODEL, PARTS, RANKER, TREE, model_kind
from xmc_tf.store.publishing import aside, publish

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf

_LOG = logging.getLogger(__name__)
_VERSION = 1
_ABOUT_THE_FOLDER = ("format", "version", "checksum", "files")  # the rest is the model's own metadata
CARD = "README.md"
MARK = "<!-- Written by xmc_tf: `xmc-tf report` replaces this file. Remove this line to keep your changes. -->"
_CARD_HEAD = 20_000


def _no_model(folder: Path) -> InputError:
    if folder.name and folder.with_name(f"{folder.name}.work").is_dir() and not folder.exists():
        return InputError(
            f"{folder} does not exist yet: the training is not finished",
            fix="run the training command again to resume",
        )
    if (old := aside(folder)) is not None:
        fix = f"run the command that replaced it again, or rename {old} to {folder.name}"
        return InputError(f"{folder} is incomplete: a run was killed while it replaced the model", fix=fix)
    if not folder.exists():
        return InputError(f"{folder} does not exist", fix="use the folder that training wrote (-m)")
    inside = any((folder / part).exists() for part in (RANKER, TREE, ENCODER))
    return InputError(
        f"{folder} is not a model: params.json is missing",
        fix="the folder is incomplete: copy it again" if inside else "use the folder that training wrote (-m)",
    )


def read_metadata(folder: Path) -> ModelMetadata:
    """Read ``params.json``; warn if it was changed after the model was saved."""
    path = folder / MODEL_HEADER
    if not path.exists():
        raise _no_model(folder)
    content: dict[str, Any] = read_unchanged_json(path, expected="a model's parameters", fix="copy the model again")
    if (content.get("format"), content.get("version")) != (MODEL_FORMAT, _VERSION):
        raise InputError(f"{path} was not written by this version of xmc_tf", fix="train the model again")
    # Only a warning, because people edit parameters by hand on purpose, as they do in PECOS's folders.
    if is_unchanged(content) is False:
        _LOG.warning(
            "%s has changed since it was saved (expected checksum %s, received %s). If you edited it, delete its line "
            '"checksum" to accept the change; if not, copy the model again',
            path, content["checksum"], checksum_of(content),
        )  # fmt: skip
    return ModelMetadata({key: value for key, value in content.items() if key not in _ABOUT_THE_FOLDER})


def kind_of(folder: Path) -> str:
    """Return "XTransformer" or "XLinear" for a model folder of xmc_tf or PECOS."""
    return model_kind(folder) or read_metadata(folder).model


def write_model_folder(
    folder: str | Path,
    parts: Mapping[str, Callable[[Path], object]],
    names: Sequence[str] | None,
    metadata: ModelMetadata,
) -> None:
    """Write a model folder atomically. An existing model there is replaced; other files are kept."""
    with publish(folder, MODEL) as place, Progress("writing the model", len(parts), "parts") as progress:
        for part in PARTS:
            if part.name in parts:
                parts[part.name](place / part.name)
                progress.add(1)
        if names:
            (place / LABELS).write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        # Written last, because without it the folder is not a model.
        about = {"format": MODEL_FORMAT, "version": _VERSION, "checksum": ""}
        files = record_files(place, exclude=[MODEL_HEADER])
        content: dict[str, Any] = {**about, **metadata.content, "files": files}
        content["checksum"] = checksum_of(content)
        (place / MODEL_HEADER).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    _remove_card(Path(folder))


def read_names(folder: Path, count: int) -> list[str] | None:
    """Return the label names, or None if there are none. Training has checked them, so only their number is checked."""
    path = folder / LABELS
    try:
        verify(path)
        if not path.exists():
            return None
        with open_regular(path, "label names", fix="copy the model again") as file:
            names = file.read().decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: {error}", fix="copy the model again") from None
    if len(names) != count:
        raise InputError(
            f"{path} does not belong to this model", expected=f"{count:,} names", received=f"{len(names):,}"
        )
    return names


def link_part(source: Path, target: Path) -> None:
    """Add a part of a model to another folder as hard links, or as copies if the file system does not support links."""
    shutil.copytree(source, target, copy_function=_link_or_copy)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def further_trees(folder: Path, metadata: ModelMetadata) -> list[Path]:
    """Return the folders of all trees except the first; each contains ``tree/`` and ``ranker/``."""
    count = metadata.content.get("nr_trees", 1)
    if not isinstance(count, int) or not 1 <= count <= MOST_TREES:
        raise InputError(f"{folder.parent / MODEL_HEADER}: nr_trees is {count!r}", expected=f"1 to {MOST_TREES}")
    return [folder / str(number) for number in range(1, count)]


def check_parts(folder: Path, metadata: ModelMetadata, found: Iterable[tuple[str, str, int]]) -> None:
    """Check that parts fit the metadata; ``found`` lists (part name, metadata key, value in the part)."""
    for part, key, number in found:
        if number != metadata.content.get(key, number):
            raise InputError(
                f"{folder / part} does not belong to {folder / 'params.json'}",
                expected=f"{key} {metadata.content[key]}", received=str(number),
                fix="the folder contains files of two models: copy the model again",
            )  # fmt: skip


def nr_dense(metadata: ModelMetadata, folder: Path) -> int:
    value = metadata.content.get("nr_dense", 0)
    if not isinstance(value, int) or value < 0:
        raise InputError(f"{folder / 'params.json'}: nr_dense is {value!r}", expected="a whole number of at least 0")
    return value


def load_tfidf(folder: Path | None, metadata: ModelMetadata) -> "Tfidf":
    """Return the vectorizer of a model; this imports TensorFlow."""
    if folder is None or not folder.is_dir():
        if folder is not None and metadata.content.get("tfidf_params"):
            raise InputError(
                f"{folder.parent}: {folder.name}/ is missing; the model needs it to read texts",
                fix="the folder is incomplete: copy it again",
            )
        raise InputError(
            "this model was trained on features and cannot read text", expected="features as in training (-x)",
            fix="train with -t instead of -x, so that the vectorizer is stored in the model",
        )  # fmt: skip
    from xmc_tf.features import Tfidf

    return Tfidf.load(folder)


def is_foreign(path: Path) -> bool:
    """Return whether the file at this path has content other than a model card written by xmc_tf."""
    if not path.exists():
        return False
    with path.open("rb") as file:
        head = file.read(_CARD_HEAD)
    return bool(head) and MARK.encode() not in head


def _remove_card(folder: Path) -> None:
    """Remove the model card that xmc_tf wrote for a model that was replaced; cards written by others are kept."""
    path = folder / CARD
    if path.is_file() and not is_foreign(path):
        path.unlink()

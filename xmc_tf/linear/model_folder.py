"""What the folders of all models have in common: ``params.json``, label names, the vectoriser, and checks of them."""

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xmc_tf.common.errors import InputError

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf


def _no_model(folder: Path) -> InputError:
    """What is wrong with a folder that has no ``params.json``."""
    if folder.with_name(f"{folder.name}.work").is_dir() and not folder.exists():
        return InputError(
            f"{folder} does not exist yet: its training has not finished",
            fix="give the training command again: it goes on where it stopped",
        )
    if not folder.exists():
        return InputError(f"{folder} does not exist", fix="give the folder that training wrote with -m")
    inside = any((folder / part).exists() for part in ("ranker", "tree", "encoder"))
    return InputError(
        f"{folder} is no model: params.json is missing",
        fix="the folder was copied in part: copy it again" if inside else "give the folder that training wrote with -m",
    )


def read_facts(folder: Path) -> dict[str, Any]:
    """What a model's ``params.json`` says."""
    path = folder / "params.json"
    if not path.exists():
        raise _no_model(folder)
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not JSON: {error}", fix="copy the model again") from None
    if not isinstance(facts, dict):
        raise InputError(f"{path} does not hold a model's parameters", fix="copy the model again")
    return facts


def write_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    """Writes ``params.json``: last of all, since a folder without it is no model."""
    (folder / "params.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def read_names(folder: Path, count: int) -> list[str] | None:
    """The names that training checked and kept; only their number is looked at again."""
    path = folder / "labels.txt"
    if not path.exists():
        return None
    try:
        names = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: {error}", fix="copy the model again") from None
    if len(names) != count:
        raise InputError(
            f"{path} does not belong to this model", expected=f"{count:,} names", received=f"{len(names):,}"
        )
    return names


def write_names(folder: Path, names: Sequence[str] | None) -> None:
    """Writes ``labels.txt``, where labels have names."""
    if names:
        (folder / "labels.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


def check_parts(folder: Path, facts: Mapping[str, Any], found: Iterable[tuple[str, str, int]]) -> None:
    """Refuses parts that were copied together from two models.

    Args:
        folder: the model's.
        facts: what its ``params.json`` says.
        found: of each part, its name, a key of the facts, and the number that the part has for it.
    """
    for part, key, number in found:
        if number != facts.get(key, number):
            raise InputError(
                f"{folder / part} does not belong to {folder / 'params.json'}",
                expected=f"{key} {facts[key]}",
                received=str(number),
                fix="the folder mixes two models: copy it again",
            )


def nr_dense(facts: Mapping[str, Any], folder: Path) -> int:
    """How many of the features are dense."""
    value = facts.get("nr_dense", 0)
    if not isinstance(value, int) or value < 0:
        raise InputError(f"{folder / 'params.json'}: nr_dense is {value!r}", expected="a whole number from 0 on")
    return value


def load_tfidf(folder: Path | None, facts: Mapping[str, Any]) -> "Tfidf":
    """A model's vectoriser; loading it loads TensorFlow."""
    if folder is None or not folder.is_dir():
        if folder is not None and facts.get("tfidf_params"):
            raise InputError(
                f"{folder.parent}: {folder.name}/ is missing, by which this model reads text",
                fix="the folder was copied in part: copy it again",
            )
        raise InputError(
            "this model was trained on features and cannot read text",
            expected="features as in training (-x)",
            fix="train it with -t instead of -x, and it keeps its own vectoriser",
        )
    from xmc_tf.features import Tfidf

    return Tfidf.load(folder)


def versions(*packages: str) -> dict[str, str]:
    """What trained the model: Python, the parts that every model needs, and the packages that are named."""
    found = {"python": platform.python_version()}
    for package in ("xmc_tf", "numpy", "scipy", "numba", *packages):
        found[package] = version(package)
    return found

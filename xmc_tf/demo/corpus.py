"""The demo's data: docstrings of the installed packages, labelled by the code that they describe.

The same package versions always give the same data. The list of packages is fixed, files are read in alphabetical
order, and a text's hash decides whether it belongs to the training or the test set.
"""

import csv
import hashlib
import importlib.metadata
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as smat

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json
from xmc_tf.common.progress import Progress
from xmc_tf.data import load_names, save_matrix
from xmc_tf.demo.sources import DocumentedObject, package_folders, prose, read_entries, words
from xmc_tf.store.files import atomic_file
from xmc_tf.store.kinds import FolderKind
from xmc_tf.store.publishing import publish

# Import name → distribution. Packages of extras are left out, so that installing them does not change the data.
PACKAGES = {
    "absl": "absl-py", "fsspec": "fsspec", "grpc": "grpcio", "h5py": "h5py", "huggingface_hub": "huggingface-hub",
    "keras": "keras", "llvmlite": "llvmlite", "markdown": "Markdown", "numba": "numba", "numpy": "numpy",
    "opt_einsum": "opt-einsum", "optree": "optree", "packaging": "packaging", "pygments": "Pygments",
    "requests": "requests", "rich": "rich", "scipy": "scipy", "tensorboard": "tensorboard", "tensorflow": "tensorflow",
    "tensorflow_text": "tensorflow-text", "tqdm": "tqdm", "transformers": "transformers", "urllib3": "urllib3",
    "werkzeug": "Werkzeug", "wrapt": "wrapt",
}  # fmt: skip
_RECIPE = 1  # increase it when the data change for the same packages
_MIN_WORDS, _MAX_WORDS = 10, 250
_TEST_SHARE = 0.15
_CORPUS = FolderKind(
    "a corpus of the demo", header="corpus.json", recognises=lambda about: {"train", "test", "labels"} <= set(about),
    parts=r"[XY]\.(trn|tst)\.(txt|npz)|labels\.txt|corpus\.json",
)  # fmt: skip
_RUN = 4  # number of consecutive words by which near copies are recognised
_SHORT_NAMES = ("tf", "np", "sp", "nn", "plt")
# Maximum number of labels per category, in the order in which a document's labels are chosen.
_MOST = {"module": 1, "about": 3, "takes": 2, "package": 1, "extends": 1, "kind": 1}
MOST_LABELS = 8
# Folders whose names mean nothing to a reader.
_STRUCTURE = {"python", "src", "core", "lib", "hl", "main", "init"}
_HUMPS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
# Words of identifiers that name no subject.
_EMPTY = set(re.findall(
    r"\w+",
    "abstract all and any are arg args base can class core default for from func function generic get has have helper "
    "impl into internal its kwargs main method mixin module name names new non not obj object old one only per pre set "
    "that the this two type types use used using util utils value values via was with",
))  # fmt: skip


def candidates(entry: DocumentedObject) -> list[str]:
    """Return all labels that fit an object. Within each category, the best ones come first."""
    place = [part.strip("_") for part in entry.module.split(".")]
    place = [part for number, part in enumerate(place) if number == 0 or (part and part not in _STRUCTURE)]
    found = [f"package: {'.'.join(place[:depth])}" for depth in range(min(len(place) - 1, 3), 0, -1)]
    if len(place) > 1:
        found.append(f"module: {'.'.join(place)}")
    found += [f"about: {word}" for word in name_words(entry.name)]
    # A method is also about its class, but less.
    found += [f"about: {word}" for word in name_words(entry.owner)]
    found += [f"takes: {name}" for name in entry.parameters if len(name) > 2 and not name.startswith("_")]
    found += [f"extends: {base.lstrip('_')}" for base in entry.bases if base.strip("_") not in ("object", "")]
    found.append(f"kind: {entry.kind}")
    return list(dict.fromkeys(found))


def name_words(name: str) -> list[str]:
    """Return the meaningful words of an identifier in lower case and in the singular."""
    words = [word.lower() for part in name.split("_") for word in _HUMPS.findall(part)]
    return [_singular(word) for word in words if len(word) > 2 and word not in _EMPTY]


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is", "as", "os")):
        return word[:-1]
    return word


def choose_labels(
    possible: Sequence[Sequence[str]], training: Sequence[bool], least: int, largest_share: float
) -> list[list[str]]:
    """Return the labels of each document, or no labels if fewer than two remain.

    Very rare and very frequent labels are not informative. So a label must have at least ``least`` training documents,
    and at most the share ``largest_share`` of all. A document gets a few labels per category, the most specific first.
    """
    most = largest_share * sum(training)
    fitting = Counter(label for labels, train in zip(possible, training, strict=True) if train for label in labels)
    allowed = {label for label, count in fitting.items() if least <= count <= most}
    while True:
        chosen = [_few(labels, allowed) for labels in possible]
        counts = Counter(label for labels, train in zip(chosen, training, strict=True) if train for label in labels)
        rare = {label for label in allowed if counts[label] < least}
        if not rare:
            return chosen
        allowed -= rare


def _few(labels: Sequence[str], allowed: set[str]) -> list[str]:
    few = []
    for group, most in _MOST.items():
        few += [label for label in labels if label in allowed and label.startswith(f"{group}:")][:most]
    return few[:MOST_LABELS] if len(few) > 1 else []


@dataclass(frozen=True)
class Corpus:
    """The texts and labels of the training and test sets."""

    train: list[str]
    test: list[str]
    train_labels: smat.csr_matrix
    test_labels: smat.csr_matrix
    names: list[str]  # of the labels, by column


def collect(folders: dict[str, Path], least: int = 5, largest_share: float = 0.08) -> Corpus:
    """Collect the texts and labels from the packages in ``folders``.

    Labels with fewer than ``least`` training documents, or with more than the share ``largest_share`` of them, are not
    informative and are left out.
    """
    hidden_paths = (*sorted(folders), *_SHORT_NAMES)
    texts, labels = [], []
    with Progress("reading documentation", total=len(folders), unit="packages") as progress:
        for package in sorted(folders):
            for entry in read_entries(folders[package], package):
                text = _text(entry, hidden_paths)
                if len(words(text)) >= _MIN_WORDS:
                    texts.append(text)
                    labels.append(candidates(entry))
            progress.add()
    kept = originals([words(text) for text in texts])
    texts, labels = [texts[i] for i in kept], [labels[i] for i in kept]
    training = [not _is_test(text) for text in texts]
    chosen = choose_labels(labels, training, least, largest_share)
    names = sorted({name for given in chosen for name in given})
    if not names:
        raise InputError(
            "the packages' documentation has no label with enough documents",
            expected=f"labels with at least {least} documents",
            received=f"{len(texts):,} texts in {', '.join(sorted(folders))}",
        )
    train, test = ([i for i, own in enumerate(chosen) if own and training[i] == part] for part in (True, False))
    train_labels, test_labels = (_matrix([chosen[i] for i in rows], names) for rows in (train, test))
    return Corpus([texts[i] for i in train], [texts[i] for i in test], train_labels, test_labels, names)


def build(folder: str | Path, packages: Iterable[str] = tuple(PACKAGES)) -> Path:
    """Write the data as ``X.trn.txt X.tst.txt Y.trn.npz Y.tst.npz labels.txt``, and their origin as ``corpus.json``."""
    packages = list(packages)
    corpus = collect(package_folders(packages))
    with publish(folder, _CORPUS) as part:
        _write_lines(part / "X.trn.txt", corpus.train)
        _write_lines(part / "X.tst.txt", corpus.test)
        _write_lines(part / "labels.txt", corpus.names)
        save_matrix(part / "Y.trn.npz", corpus.train_labels)
        save_matrix(part / "Y.tst.npz", corpus.test_labels)
        about = {**origin(packages), "train": len(corpus.train), "test": len(corpus.test), "labels": len(corpus.names)}
        (part / "corpus.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return Path(folder)


def write_table(path: str | Path, packages: Iterable[str] = tuple(PACKAGES)) -> int:
    """Write the texts and labels (separated by vertical bars) to a CSV file, and return the number of rows."""
    corpus = collect(package_folders(list(packages)))
    with atomic_file(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["text", "label"])
        for texts, Y in ((corpus.train, corpus.train_labels), (corpus.test, corpus.test_labels)):
            for row, text in enumerate(texts):
                out.writerow([text, "|".join(corpus.names[label] for label in Y[row].indices)])
    return len(corpus.train) + len(corpus.test)


def write_unlabelled(folder: Path, packages: list[str]) -> tuple[Path, Path]:
    """Return a file of texts, and one of the subjects that they may have; they are written if they are not there."""
    if not is_built(folder, packages):
        build(folder, packages)
    subjects = folder.with_name(f"{folder.name}-subjects.txt")
    names = [name.partition(": ")[2] for name in load_names(folder / "labels.txt") if name.startswith("about: ")]
    with atomic_file(subjects) as part:
        _write_lines(part, names)
    return folder / "X.trn.txt", subjects


def is_built(folder: str | Path, packages: Iterable[str] = tuple(PACKAGES)) -> bool:
    """Return whether the folder contains data that were built from the installed versions of the packages."""
    path = Path(folder, "corpus.json")
    if not path.exists():
        return False
    about = read_json(path, fix=f"remove {folder}: the demo builds it again")
    return all(about.get(key) == value for key, value in origin(packages).items())


def origin(packages: Iterable[str]) -> dict[str, object]:
    """Return the origin of the data: the version of the recipe, and the versions of the packages."""
    return {
        "recipe": _RECIPE,
        "packages": {name: importlib.metadata.version(PACKAGES.get(name, name)) for name in packages},
    }


def originals(texts: Sequence[Sequence[str]], overlap: float = 0.5) -> list[int]:
    """Return the indices of the texts (lists of words) that are not near copies of earlier texts.

    Two texts are near copies if they share at least ``overlap`` of the four-word sequences of the shorter text.
    """
    holders: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    size: dict[int, int] = {}
    for number, own in enumerate(texts):
        runs = {tuple(own[i : i + _RUN]) for i in range(max(len(own) - _RUN + 1, 1))}
        shared = Counter(other for run in runs for other in holders[run] if run in holders)
        if any(count >= overlap * min(len(runs), size[other]) for other, count in shared.items()):
            continue
        size[number] = len(runs)
        for run in runs:
            holders[run].append(number)
    return list(size)


def _text(entry: DocumentedObject, hidden_paths: tuple[str, ...]) -> str:
    hidden = tuple(name for name in (entry.name, entry.owner) if name)
    return " ".join(prose(entry.docstring, hidden, hidden_paths).split(" ")[:_MAX_WORDS])


def _is_test(text: str) -> bool:
    digest = hashlib.sha256(" ".join(words(text)).encode()).digest()
    return int.from_bytes(digest[:8], "big") < _TEST_SHARE * 2**64


def _matrix(labels: Sequence[Sequence[str]], names: Sequence[str]) -> smat.csr_matrix:
    column = {name: number for number, name in enumerate(names)}
    indptr = np.cumsum([0, *map(len, labels)])
    indices = np.array([j for given in labels for j in sorted(column[name] for name in given)], np.int32)
    return smat.csr_matrix((np.ones(len(indices), np.float32), indices, indptr), shape=(len(labels), len(names)))


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")

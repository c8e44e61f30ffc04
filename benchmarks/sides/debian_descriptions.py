"""Data sets in many languages, made from the lists of Debian's package manager.

A document is the translated description of a package, its labels are the package's debtags and section. The lists are
those that ``apt-get -o Acquire::Languages=de,fr update`` fetches. The packages of one source package, whose
descriptions are often alike, are all in the same part.
"""

import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.data import save_matrix

LANGUAGES = ("de", "fr", "it", "da", "ru", "pl", "ja", "pt_BR", "sk", "es", "uk", "ko")
_READ = "/usr/lib/apt/apt-helper"
# Tags of how a package is built rather than of what it is about.
_BUILD_TAGS = ("role::", "interface::", "implemented-in::", "special::", "devel::lang", "uitoolkit::")
_LEAST_LABELS, _LEAST_DOCUMENTS, _TEST_SHARE = 2, 5, 0.25


class Package(NamedTuple):
    """What is known of a package, beside its description."""

    source: str
    labels: tuple[str, ...]


def read_packages(lists: Path) -> dict[str, Package]:
    """Return the packages that have enough labels, by name.

    Args:
        lists: folder of the package manager's lists.
    """
    packages = {}
    for path in _found(lists, "*_binary-*_Packages*"):
        for fields in _paragraphs(path):
            labels = [label for label in _tags(fields.get("Tag", "")) if not label.startswith(_BUILD_TAGS)]
            if "Section" in fields:
                labels.append(f"section::{fields['Section']}")
            if len(labels) >= _LEAST_LABELS:
                name = fields["Package"]
                source = fields.get("Source", name).split()[0]
                packages[name] = Package(source, tuple(dict.fromkeys(labels)))
    return packages


def write_data(
    lists: Path, packages: Mapping[str, Package], language: str, folder: Path, *, most: int, held_out: bool = False
) -> None:
    """Write a data set: X.trn.txt, X.tst.txt, Y.trn.npz, Y.tst.npz and labels.txt.

    Args:
        lists: folder of the package manager's lists.
        packages: the packages.
        language: code of the language, as in the names of the lists.
        folder: where to write; it is made.
        most: maximum number of training documents; a third of it is that of test documents.
        held_out: take a quarter of the training documents in place of the test documents.
    """
    documents = _documents(lists, packages, language)
    rng = random.Random(0)
    train, test = _split(documents, packages, rng)
    if held_out:
        train, test = _split(train, packages, rng)
    parts = {"trn": train[:most], "tst": test[: most // 3]}
    counted = Counter(label for name, _ in parts["trn"] for label in packages[name].labels)
    labels = sorted(label for label, count in counted.items() if count >= _LEAST_DOCUMENTS)
    column = {label: place for place, label in enumerate(labels)}
    folder.mkdir(parents=True)
    (folder / "labels.txt").write_text("".join(f"{label}\n" for label in labels), "utf-8")
    for part, pairs in parts.items():
        rows = [([column[one] for one in packages[name].labels if one in column], text) for name, text in pairs]
        rows = [row for row in rows if row[0]]
        columns = np.array([one for row, _ in rows for one in row], np.int32)
        splits = np.cumsum([0, *(len(row) for row, _ in rows)])
        Y = csr_matrix((np.ones(len(columns), np.float32), columns, splits), shape=(len(rows), len(labels)))
        Y.sort_indices()
        save_matrix(folder / f"Y.{part}.npz", Y)
        (folder / f"X.{part}.txt").write_text("".join(f"{text}\n" for _, text in rows), "utf-8")


def _documents(lists: Path, packages: Mapping[str, Package], language: str) -> list[tuple[str, str]]:
    """Return names of packages and their descriptions; of equal descriptions the first."""
    name_of: dict[str, str] = {}
    for path in _found(lists, f"*_i18n_Translation-{language.replace('_', '%5f')}*"):
        for fields in _paragraphs(path):
            key = f"Description-{language}"
            if key in fields and fields.get("Package") in packages:
                text = " ".join(fields[key].replace("\n.\n", "\n").split())
                name_of.setdefault(text, fields["Package"])
    return [(name, text) for text, name in name_of.items()]


def _split(
    documents: Sequence[tuple[str, str]], packages: Mapping[str, Package], rng: random.Random
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return documents to train on and to test on, in random order."""
    sources = sorted({packages[name].source for name, _ in documents})
    tested = set(rng.sample(sources, int(_TEST_SHARE * len(sources))))
    order = rng.sample(range(len(documents)), len(documents))
    train = [documents[place] for place in order if packages[documents[place][0]].source not in tested]
    return train, [documents[place] for place in order if packages[documents[place][0]].source in tested]


def _found(lists: Path, pattern: str) -> list[Path]:
    """Return the lists of a pattern."""
    paths = sorted(lists.glob(pattern))
    if not paths:
        sys.exit(f"{lists}: no list {pattern} (fix: apt-get -o Acquire::Languages=CODE,… update)")
    return paths


def _paragraphs(path: Path) -> Iterator[dict[str, str]]:
    """Yield the fields of each paragraph of a list, which may be compressed."""
    content = subprocess.run([_READ, "cat-file", str(path)], stdout=subprocess.PIPE, check=True).stdout
    for paragraph in content.decode("utf-8", "replace").split("\n\n"):
        # A line that begins with a space continues the field before it.
        lines = re.split(r"\n(?! )", paragraph.strip("\n"))
        yield {
            name: value.replace("\n ", "\n").strip()
            for name, colon, value in (line.partition(":") for line in lines)
            if colon
        }


def _tags(field: str) -> Iterator[str]:
    """Yield the tags of a field; "a::{b,c}" is short for "a::b, a::c"."""
    for tag in re.findall(r"[^\s,{]+(?:\{[^}]*\})?", field):
        beginning, _, ends = tag.removesuffix("}").partition("{")
        for end in ends.split(",") if ends else [""]:
            yield beginning + end.strip()

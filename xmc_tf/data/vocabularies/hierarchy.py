from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.data.vocabularies.skos import Concept

_FILE = "broader.tsv"


@dataclass(frozen=True)
class LabelHierarchy:
    """The broader terms of each label, sorted: names of labels, or identifiers of concepts that are not labels."""

    broader: Mapping[str, tuple[str, ...]]

    @classmethod
    def of_concepts(cls, labels: Iterable[tuple[str, Concept]]) -> Self | None:
        """Return the hierarchy of labels, given by name and concept; None if none of them has a broader term."""
        pairs = list(labels)
        name_of = {concept.uri: name for name, concept in pairs}
        broader: dict[str, set[str]] = {}
        for name, concept in pairs:
            terms = {name_of.get(uri, uri) for uri in concept.broader} - {name}
            if terms:
                broader.setdefault(name, set()).update(terms)
        return cls({name: tuple(sorted(broader[name])) for name in sorted(broader)}) if broader else None

    def broader_matrix(self, names: Sequence[str]) -> csr_matrix:
        """Return labels × terms, with a 1 for each broader term; the first terms are the labels, the others follow."""
        numbers: dict[str, list[int]] = {}
        for number, name in enumerate(names):
            numbers.setdefault(name, []).append(number)
        rows: list[int] = []
        columns: list[int] = []
        count = len(names)
        for name, terms in self.broader.items():
            for term in terms:
                if term not in numbers:
                    numbers[term] = [count]
                    count += 1
                for label in (number for number in numbers.get(name, ()) if number < len(names)):
                    for place in numbers[term]:
                        rows.append(label)
                        columns.append(place)
        return csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=(len(names), count))

    def save(self, folder: Path) -> None:
        """Write a folder: a line for each label with its broader terms, separated by tabs."""
        folder.mkdir(parents=True, exist_ok=True)
        lines = ("\t".join((name, *terms)) + "\n" for name, terms in self.broader.items())
        (folder / _FILE).write_text("".join(lines), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load a folder that `save` wrote."""
        path = folder / _FILE
        try:
            lines = path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read: {error}", fix="copy the model again") from None
        cells = [line.split("\t") for line in lines]
        if wrong := [number for number, line in enumerate(cells, start=1) if len(line) < 2 or not all(line)]:
            raise InputError(
                f"{path}, line {wrong[0]}: no label with broader terms", expected="names, separated by tabs",
                received=lines[wrong[0] - 1][:60], fix="copy the model again",
            )  # fmt: skip
        return cls({name: tuple(terms) for name, *terms in cells})

"""Label names from a file of lines, completed by a vocabulary."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from xmc_tf.common.errors import InputError
from xmc_tf.data.labels import load_names
from xmc_tf.data.vocabularies.hierarchy import LabelHierarchy
from xmc_tf.data.vocabularies.skos import Concept, load_vocabulary

_LOG = logging.getLogger(__name__)


class LabelLines(NamedTuple):
    """The names of each label, with alternative ones after tabs, and their broader terms; None if there are none."""

    lines: list[str] | None
    hierarchy: LabelHierarchy | None = None


def load_label_lines(path: str | None, vocabulary: str | None = None, language: str | None = None) -> LabelLines:
    """Read one line per label: its names or, with a SKOS vocabulary, its concept's identifier or preferred name."""
    if vocabulary is None:
        return LabelLines(load_names(path) if path else None)
    if not path or language is None:
        raise InputError(
            f"--vocabulary {vocabulary} needs {'--language' if path else '--labels'}",
            expected="--labels with a concept's identifier or preferred name per column, and --language",
            fix="add --language en" if path else "write the identifiers to a file, one per line",
        )
    return _complete(load_names(path), load_vocabulary(vocabulary, language), path, vocabulary)


def _complete(lines: list[str], concepts: list[Concept], path: str | Path, vocabulary: str | Path) -> LabelLines:
    """Return the lines, with all names of the concept of each label; labels without a concept keep their line."""
    found = _concepts_of(lines, concepts, f"{path}: no line", vocabulary)
    missing = [line for line, concept in zip(lines, found, strict=True) if concept is None]
    if missing:
        _LOG.warning(
            "label names: %s of %s lines of %s are not concepts of %s, and are names as they are; the first is %r",
            f"{len(missing):,}", f"{len(lines):,}", path, vocabulary, missing[0],
        )  # fmt: skip
    more = sum(len(concept.names) - 1 for concept in found if concept is not None)
    _LOG.info("label names: %s concepts with %s alternative names", f"{len(lines) - len(missing):,}", f"{more:,}")
    hierarchy = LabelHierarchy.of_concepts((concept.names[0], concept) for concept in found if concept is not None)
    if hierarchy is not None:
        _LOG.info("label names: %s concepts with broader terms", f"{len(hierarchy.broader):,}")
    return LabelLines(
        [line if concept is None else concept.line for line, concept in zip(lines, found, strict=True)], hierarchy
    )


def load_hierarchy(names: Sequence[str], vocabulary: str | Path, language: str) -> LabelHierarchy:
    """Read the broader terms of labels, which are preferred names or identifiers, from a vocabulary."""
    found = _concepts_of(names, load_vocabulary(vocabulary, language), "no label", vocabulary)
    pairs = [(name, concept) for name, concept in zip(names, found, strict=True) if concept is not None]
    hierarchy = LabelHierarchy.of_concepts(pairs)
    if hierarchy is None:
        raise InputError(
            f"{vocabulary} has no broader terms of the labels", expected="skos:broader or skos:narrower",
            received=f"none, for {len(pairs):,} labels that are concepts", fix="leave out --vocabulary",
        )  # fmt: skip
    return hierarchy


def _concepts_of(
    lines: Sequence[str], concepts: Sequence[Concept], none: str, vocabulary: str | Path
) -> list[Concept | None]:
    """Return the concept of each line, an identifier or a preferred name; raise an error if no line has one."""
    of_uri = {concept.uri: concept for concept in concepts}
    of_name: dict[str, Concept] = {}
    for concept in concepts:
        of_name.setdefault(concept.names[0].casefold(), concept)
    found = [of_uri.get(line.strip().strip("<>")) or of_name.get(line.strip().casefold()) for line in lines]
    if not any(found):
        raise InputError(
            f"{none} is a concept of {vocabulary}",
            expected=f"identifiers as {concepts[0].uri}, or preferred names as {concepts[0].names[0]!r}",
            received=repr(lines[0]) if lines else "nothing",
            fix="check that both are of the same vocabulary, and the language",
        )
    return found

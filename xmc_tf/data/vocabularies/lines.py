"""Label names from a file of lines, completed by a vocabulary."""

import logging
from pathlib import Path
from typing import NamedTuple

from xmc_tf.common.errors import InputError
from xmc_tf.data.labels import load_names
from xmc_tf.data.vocabularies.hierarchy import LabelHierarchy
from xmc_tf.data.vocabularies.skos import Concept, load_vocabulary

_LOG = logging.getLogger(__name__)


class LabelLines(NamedTuple):
    """Names of labels, and their broader terms.

    Attributes:
        lines: the names of each label, alternative ones after tabs; None: there are no names.
        hierarchy: their broader terms; None: there is no vocabulary, or it has none for these labels.
    """

    lines: list[str] | None
    hierarchy: LabelHierarchy | None = None


def load_label_lines(path: str | None, vocabulary: str | None = None, language: str | None = None) -> LabelLines:
    """Read the names of labels, one line per label, and their broader terms.

    Args:
        path: a file with a line for each label: its names; or, with a vocabulary, the identifier of its concept or the
            preferred name; None: there are no names.
        vocabulary: a SKOS file with the names of the concepts, or None.
        language: tag of the language of the names in the vocabulary, as "en".
    """
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
    of_uri = {concept.uri: concept for concept in concepts}
    of_name: dict[str, Concept] = {}
    for concept in concepts:
        of_name.setdefault(concept.names[0].casefold(), concept)
    found = [of_uri.get(line.strip().strip("<>")) or of_name.get(line.strip().casefold()) for line in lines]
    missing = [line for line, concept in zip(lines, found, strict=True) if concept is None]
    if len(missing) == len(lines):
        raise InputError(
            f"{path}: no line is a concept of {vocabulary}",
            expected=f"identifiers as {concepts[0].uri}, or preferred names as {concepts[0].names[0]!r}",
            received=repr(lines[0]) if lines else "an empty file",
            fix="check that both files are of the same vocabulary, and the language",
        )
    if missing:
        _LOG.warning(
            "label names: %s of %s lines of %s are not concepts of %s, and are names as they are; the first is %r",
            f"{len(missing):,}", f"{len(lines):,}", path, vocabulary, missing[0],
        )  # fmt: skip
    more = sum(len(concept.names) - 1 for concept in found if concept is not None)
    _LOG.info("label names: %s concepts with %s alternative names", f"{len(lines) - len(missing):,}", f"{more:,}")
    hierarchy = LabelHierarchy.of_concepts([concept for concept in found if concept is not None])
    if hierarchy is not None:
        _LOG.info("label names: %s concepts with broader terms", f"{len(hierarchy.broader):,}")
    return LabelLines(
        [line if concept is None else concept.line for line, concept in zip(lines, found, strict=True)], hierarchy
    )

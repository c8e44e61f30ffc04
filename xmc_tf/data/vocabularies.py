"""Controlled vocabularies (SKOS), which give label names in several languages and the broader terms of labels."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.extras import pip_install
from xmc_tf.data.labels import load_names, numbers_by_name

_LOG = logging.getLogger(__name__)
FORMATS = {".ttl": "turtle", ".turtle": "turtle", ".rdf": "xml", ".xml": "xml", ".nt": "nt"}
"""The format of a file by its ending."""
_SKOS = "http://www.w3.org/2004/02/skos/core#"
_FILE = "broader.tsv"


class Concept(NamedTuple):
    """A concept: its identifier, its names in one language (the preferred first), and its sorted broader concepts."""

    uri: str
    names: tuple[str, ...]
    broader: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The line in a file of label names: the preferred name, then the alternative ones, separated by tabs."""
        return "\t".join(self.names)


@dataclass(frozen=True)
class LabelHierarchy:
    """The sorted broader terms of each label: label names, or identifiers of concepts that are not labels."""

    broader: Mapping[str, tuple[str, ...]]

    @classmethod
    def of_concepts(cls, labels: Iterable[tuple[str, Concept]]) -> Self | None:
        """Return the hierarchy of labels, given as pairs (name, concept); None if no label has a broader term."""
        pairs = list(labels)
        name_of = {concept.uri: name for name, concept in pairs}
        broader: dict[str, set[str]] = {}
        for name, concept in pairs:
            terms = {name_of.get(uri, uri) for uri in concept.broader} - {name}
            if terms:
                broader.setdefault(name, set()).update(terms)
        return cls({name: tuple(sorted(broader[name])) for name in sorted(broader)}) if broader else None

    def broader_matrix(self, names: Sequence[str]) -> csr_matrix:
        """Return a matrix of labels × terms with a 1 for each broader term; the first columns are the labels."""
        numbers, rows, columns, count = numbers_by_name(names), list[int](), list[int](), len(names)
        for name, terms in self.broader.items():
            for term in terms:
                if term not in numbers:
                    numbers[term] = [count]
                    count += 1
                for label in (number for number in numbers.get(name, ()) if number < len(names)):
                    rows += [label] * len(numbers[term])
                    columns += numbers[term]
        return csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=(len(names), count))

    def save(self, folder: Path) -> None:
        """Write a file: for each label with broader terms, a line with its name and these terms, separated by tabs."""
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
                f"{path}, line {wrong[0]} is damaged", expected="a label and its broader terms, separated by tabs",
                received=lines[wrong[0] - 1][:60], fix="copy the model again",
            )  # fmt: skip
        return cls({name: tuple(terms) for name, *terms in cells})


class LabelLines(NamedTuple):
    """The names of each label, separated by tabs (the preferred name first), and their hierarchy. None: unknown."""

    lines: list[str] | None
    hierarchy: LabelHierarchy | None = None


def load_label_lines(path: str | None, vocabulary: str | None = None, language: str | None = None) -> LabelLines:
    """Read each label's names from its line or, with a SKOS vocabulary, from the concept that the line identifies."""
    if vocabulary is None:
        return LabelLines(load_names(path) if path else None)
    if not path or language is None:
        raise InputError(
            f"--vocabulary {vocabulary} needs {'--language' if path else '--labels'}",
            expected="--labels with the identifier or preferred name of one concept per line, and --language",
            fix="add --language en" if path else "write the identifiers to a file, one per line, and add --labels FILE",
        )
    lines = load_names(path)
    found = _concepts_of(lines, load_vocabulary(vocabulary, language), f"{path}: no line", vocabulary)
    missing = [line for line, concept in zip(lines, found, strict=True) if concept is None]
    if missing:
        _LOG.warning(
            "label names: %s of %s lines of %s are not concepts of %s, and are used verbatim; the first is %r",
            f"{len(missing):,}", f"{len(lines):,}", path, vocabulary, missing[0],
        )  # fmt: skip
    concepts = [concept for concept in found if concept is not None]
    more = sum(len(concept.names) - 1 for concept in concepts)
    _LOG.info("label names: %s concepts with %s alternative names", f"{len(concepts):,}", f"{more:,}")
    hierarchy = LabelHierarchy.of_concepts((concept.names[0], concept) for concept in concepts)
    if hierarchy is not None:
        _LOG.info("label names: %s concepts with broader terms", f"{len(hierarchy.broader):,}")
    # Labels without a concept keep their line.
    names = [line if concept is None else concept.line for line, concept in zip(lines, found, strict=True)]
    return LabelLines(names, hierarchy)


def all_label_lines(vocabulary: str, language: str | None) -> LabelLines:
    """Read the names of all concepts of a SKOS vocabulary, which become labels sorted by identifier."""
    concepts = load_vocabulary(vocabulary, language)
    hierarchy = LabelHierarchy.of_concepts((concept.names[0], concept) for concept in concepts)
    return LabelLines([concept.line for concept in concepts], hierarchy)


def load_hierarchy(names: Sequence[str], vocabulary: str | Path, language: str) -> LabelHierarchy:
    """Read the broader terms of labels from a vocabulary; ``names`` are preferred names or identifiers."""
    found = _concepts_of(names, load_vocabulary(vocabulary, language), "no label", vocabulary)
    pairs = [(name, concept) for name, concept in zip(names, found, strict=True) if concept is not None]
    hierarchy = LabelHierarchy.of_concepts(pairs)
    if hierarchy is None:
        raise InputError(
            f"{vocabulary} has no broader terms for the labels", expected="skos:broader or skos:narrower",
            received=f"none, for {len(pairs):,} labels that are concepts", fix="leave out --vocabulary",
        )  # fmt: skip
    return hierarchy


def _concepts_of(
    lines: Sequence[str], concepts: Sequence[Concept], none: str, vocabulary: str | Path
) -> list[Concept | None]:
    """Return the concept of each line (its identifier or preferred name), or None; raise an error if all are None."""
    of_uri = {concept.uri: concept for concept in concepts}
    of_name: dict[str, Concept] = {}
    for concept in concepts:
        of_name.setdefault(concept.names[0].casefold(), concept)
    found = [of_uri.get(line.strip().strip("<>")) or of_name.get(line.strip().casefold()) for line in lines]
    if not any(found):
        raise InputError(
            f"{none} is a concept of {vocabulary}",
            expected=f"identifiers such as {concepts[0].uri}, or preferred names such as {concepts[0].names[0]!r}",
            received=repr(lines[0]) if lines else "nothing",
            fix="check that the labels are from this vocabulary, and check the language",
        )
    return found


def load_vocabulary(path: str | Path, language: str | None) -> list[Concept]:
    """Read the concepts that have a preferred name in a language, sorted by identifier.

    If ``language`` is None, the vocabulary must be in a single language.
    """
    graph = _parse(Path(path))
    tags = sorted({name.language for name in graph.objects(None, _term("prefLabel")) if name.language})
    if language is None:
        if len(tags) > 1:
            raise InputError(
                f"{path} has names in the languages {', '.join(tags[:20])}",
                expected="the language of the names",
                fix=f"choose one, for example --names-language {tags[0]}",
            )
        language = tags[0] if tags else "en"
    preferred = _names_in(graph, "prefLabel", language)
    others = [_names_in(graph, kind, language) for kind in ("altLabel", "hiddenLabel")]
    broader: dict[str, set[str]] = {}
    for narrow, broad in graph.subject_objects(_term("broader")):
        broader.setdefault(str(narrow), set()).add(str(broad))
    for broad, narrow in graph.subject_objects(_term("narrower")):
        broader.setdefault(str(narrow), set()).add(str(broad))
    concepts = []
    for uri in sorted(preferred):
        first = preferred[uri][0]
        more = sorted({name for found in (preferred, *others) for name in found.get(uri, ())} - {first})
        concepts.append(Concept(uri, (first, *more), tuple(sorted(broader.get(uri, set()) - {uri}))))
    if not concepts:
        raise InputError(
            f"{path}: no concept has a preferred name in the language {language!r}",
            expected="skos:prefLabel in that language",
            received=f"preferred names in {', '.join(tags)}" if tags else "no skos:prefLabel with a language",
            fix="choose another language",
        )
    return concepts


def _parse(path: Path) -> Any:
    format_ = FORMATS.get(path.suffix.lower())
    if format_ is None:
        raise InputError(
            f"{path}: the format of the vocabulary is unknown",
            expected=f"a file name that ends in {', '.join(FORMATS)}",
            received=path.name,
            fix="convert it to Turtle, for example with rapper or rdfpipe",
        )
    if not path.is_file():
        raise InputError(f"{path} does not exist", expected="a SKOS vocabulary")
    try:
        from rdflib import Graph
    except ImportError:
        raise InputError(f"{path}: vocabularies need the package rdflib", fix=pip_install("skos")) from None
    graph = Graph()
    try:
        graph.parse(data=path.read_bytes(), format=format_, publicID=path.resolve().as_uri())
    except Exception as error:  # noqa: BLE001  rdflib's parsers raise many types for damaged files
        raise InputError(
            f"{path} cannot be read as {format_}: {' '.join(str(error).split())[:300]}",
            expected=f"a vocabulary in the format that {path.suffix} stands for",
            fix="correct the file, or rename it to end in the suffix of its format",
        ) from None
    return graph


def _names_in(graph: Any, kind: str, language: str) -> dict[str, list[str]]:
    """Map the identifier of each concept to its sorted names in the closest match for a language."""
    found: dict[str, dict[int, set[str]]] = {}
    for concept, name in graph.subject_objects(_term(kind)):
        tag, wanted, text = (name.language or "").lower(), language.lower(), " ".join(str(name).split())
        if text and (tag in ("", wanted) or tag.startswith(f"{wanted}-")):
            # The language itself is better than no language, and this is better than a regional variant.
            distance = 0 if tag == wanted else 2 if tag else 1
            found.setdefault(str(concept), {}).setdefault(distance, set()).add(text)
    return {uri: sorted(by_distance[min(by_distance)]) for uri, by_distance in found.items()}


def _term(name: str) -> Any:
    from rdflib import URIRef

    return URIRef(_SKOS + name)

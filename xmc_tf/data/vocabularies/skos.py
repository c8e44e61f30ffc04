"""SKOS vocabularies: concepts with names in several languages, and their broader terms."""

from pathlib import Path
from typing import Any, NamedTuple

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.extras import pip_install

FORMATS = {".ttl": "turtle", ".turtle": "turtle", ".rdf": "xml", ".xml": "xml", ".nt": "nt"}
"""The format of a file by its ending."""
_SKOS = "http://www.w3.org/2004/02/skos/core#"


class Concept(NamedTuple):
    """A concept: its identifier, its names in one language (the preferred one first), its broader concepts, sorted."""

    uri: str
    names: tuple[str, ...]
    broader: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The line of a file of label names: the preferred name, and the others after tabs."""
        return "\t".join(self.names)


def load_vocabulary(path: str | Path, language: str | None) -> list[Concept]:
    """Read the concepts that have a preferred name in a language (None: the only one), in the order of identifiers."""
    graph = _parse(Path(path))
    tags = sorted({name.language for name in graph.objects(None, _term("prefLabel")) if name.language})
    if language is None:
        if len(tags) > 1:
            raise InputError(
                f"{path} has names in the languages {', '.join(tags[:20])}",
                expected="the language of the names",
                fix=f"add --names-language {tags[0]}, or another one",
            )
        language = tags[0] if tags else "en"
    preferred = _names_in(graph, "prefLabel", language)
    others = [_names_in(graph, kind, language) for kind in ("altLabel", "hiddenLabel")]
    concepts, broader = [], _broader_concepts(graph)
    for uri in sorted(preferred):
        first = preferred[uri][0]
        more = sorted({name for found in (preferred, *others) for name in found.get(uri, ())} - {first})
        concepts.append(Concept(uri, (first, *more), tuple(sorted(broader.get(uri, ())))))
    if not concepts:
        raise InputError(
            f"{path}: no concept has a preferred name in the language {language!r}",
            expected="skos:prefLabel in that language",
            received=f"preferred names in the languages {', '.join(tags)}"
            if tags
            else "no skos:prefLabel with a language",
            fix="choose another language",
        )
    return concepts


def _parse(path: Path) -> Any:
    format_ = FORMATS.get(path.suffix.lower())
    if format_ is None:
        raise InputError(
            f"{path}: the format of the vocabulary is unknown",
            expected=f"a file that ends with {', '.join(FORMATS)}",
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
            fix="correct the file, or give it the ending of its format",
        ) from None
    return graph


def _names_in(graph: Any, kind: str, language: str) -> dict[str, list[str]]:
    """Return the names of each concept, by its identifier: those of the best match of the language, sorted."""
    found: dict[str, dict[int, set[str]]] = {}
    for concept, name in graph.subject_objects(_term(kind)):
        distance = _distance(name.language, language)
        text = " ".join(str(name).split())
        if distance is not None and text:
            found.setdefault(str(concept), {}).setdefault(distance, set()).add(text)
    return {uri: sorted(by_distance[min(by_distance)]) for uri, by_distance in found.items()}


def _broader_concepts(graph: Any) -> dict[str, set[str]]:
    """Return the broader concepts of each concept, by their identifiers."""
    found: dict[str, set[str]] = {}
    for narrower, broader in graph.subject_objects(_term("broader")):
        found.setdefault(str(narrower), set()).add(str(broader))
    for broader, narrower in graph.subject_objects(_term("narrower")):
        found.setdefault(str(narrower), set()).add(str(broader))
    return {uri: concepts - {uri} for uri, concepts in found.items()}


def _distance(tag: str | None, language: str) -> int | None:
    """Return 0 for the language itself, 1 for a name without a language, 2 for a regional variant, None for others."""
    if tag is None:
        return 1
    tag, language = tag.lower(), language.lower()
    if tag == language:
        return 0
    return 2 if tag.startswith(f"{language}-") else None


def _term(name: str) -> Any:
    from rdflib import URIRef

    return URIRef(_SKOS + name)

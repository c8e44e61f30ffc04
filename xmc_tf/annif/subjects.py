from collections.abc import Callable
from typing import Any

from annif.exception import AnnifException
from rdflib import URIRef
from rdflib.namespace import SKOS

from xmc_tf.common.errors import InputError
from xmc_tf.data import TextFile

# Hidden labels, such as misspellings, occur in texts but should not be shown.
_ALTERNATIVE = (SKOS.altLabel, SKOS.hiddenLabel)


def analysis_of(project: Any) -> Callable[[str], str]:
    """Return a function that normalizes the words of a text with the project's analyzer, if the project has one.

    Short words, numbers and punctuation are kept, because subject names contain them.
    """
    if not project.analyzer_spec:
        return lambda text: text
    analyzer = project.analyzer
    return lambda text: " ".join(analyzer.tokenize_words(text, filter=False))


def subject_names(project: Any) -> list[str]:
    """Return one line per subject: its preferred name (or URI) and then its alternative names, separated by tabs."""
    language, subjects, analyzed = project.vocab_lang, project.vocab.subjects, analysis_of(project)
    try:
        vocabulary = project.vocab.skos
    except AnnifException:  # the vocabulary was loaded from a table, which has preferred names only
        vocabulary = None
    lines = [""] * len(subjects)
    for number, subject in subjects.active:
        name = (subject.labels or {}).get(language) or subject.uri
        others = []
        if vocabulary is not None:
            others = vocabulary.get_concept_labels(URIRef(subject.uri), _ALTERNATIVE)[language]
        found = (analyzed(" ".join(one.split())) for one in (name, *others))
        lines[number] = "\t".join(dict.fromkeys(filter(None, found)))
    return [line or f"subject {number}" for number, line in enumerate(lines)]


def chosen_subjects(project: Any, path: str, count: int) -> list[int]:
    """Return the numbers of the subjects that a file lists by URI or name. Leave out subjects unknown to the model."""
    chosen = []
    for line, text in enumerate(TextFile(path, name="subjects to suggest"), start=1):
        if not (word := text.strip().strip("<>")):
            continue
        number = project.subjects.by_uri(word, warnings=False)
        number = project.subjects.by_label(word, project.vocab_lang) if number is None else number
        if number is None:
            raise InputError(
                f"{path}, line {line:,}: not a subject of this vocabulary", expected="a URI or a name",
                received=repr(word[:80]),
            )  # fmt: skip
        chosen.append(number)
    known = [number for number in chosen if number < count]  # the vocabulary may have gained others
    if not known:
        raise InputError(f"{path} lists no subject that the model knows", expected="a URI or a name on each line")
    return known

"""The names of a vocabulary's subjects in the project's language."""

from typing import Any

from annif.exception import AnnifException
from rdflib import URIRef
from rdflib.namespace import SKOS

from xmc_tf.annif.analysis import analysis_of
from xmc_tf.common.errors import InputError
from xmc_tf.data import TextFile

# Hidden labels occur in texts and should not be shown, such as misspellings.
_ALTERNATIVE = (SKOS.altLabel, SKOS.hiddenLabel)


def subject_names(project: Any) -> list[str]:
    """Return a line for each subject: its preferred name (or URI), then alternative names after tabs."""
    language, subjects, analyzed = project.vocab_lang, project.vocab.subjects, analysis_of(project)
    alternatives = _alternatives(project)
    lines = [""] * len(subjects)
    for number, subject in subjects.active:
        name = (subject.labels or {}).get(language) or subject.uri
        found = (analyzed(" ".join(one.split())) for one in (name, *alternatives(subject.uri, language)))
        lines[number] = "\t".join(dict.fromkeys(filter(None, found)))
    return [line or f"subject {number}" for number, line in enumerate(lines)]


def chosen_subjects(project: Any, path: str, count: int) -> list[int]:
    """Return the numbers of the subjects that a file lists by URI or name, of those that the model knows."""
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


def _alternatives(project: Any) -> Any:
    try:
        vocabulary = project.vocab.skos
    except AnnifException:  # the vocabulary was loaded from a table, which has preferred names only
        return lambda uri, language: []
    return lambda uri, language: vocabulary.get_concept_labels(URIRef(uri), _ALTERNATIVE)[language]

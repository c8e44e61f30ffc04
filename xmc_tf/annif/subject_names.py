"""The names of a vocabulary's subjects: preferred and alternative ones in the project's language."""

from typing import Any

from annif.exception import AnnifException
from rdflib import URIRef
from rdflib.namespace import SKOS

from xmc_tf.annif.analysis import analysis_of

# Hidden labels are those that texts have and people should not see, such as misspellings.
_ALTERNATIVE = (SKOS.altLabel, SKOS.hiddenLabel)


def subject_names(project: Any) -> list[str]:
    r"""Return a line for each subject: its preferred name, then alternative names after tabs.

    The project's analyzer, if it has one, normalizes their words. A subject without a name in the language, such as a
    removed one, has its URI.

    Args:
        project: Annif's project.
    """
    language, subjects, analyzed = project.vocab_lang, project.vocab.subjects, analysis_of(project)
    alternatives = _alternatives(project)
    lines = [""] * len(subjects)
    for number, subject in subjects.active:
        name = (subject.labels or {}).get(language) or subject.uri
        found = (analyzed(" ".join(one.split())) for one in (name, *alternatives(subject.uri, language)))
        lines[number] = "\t".join(dict.fromkeys(filter(None, found)))
    return [line or f"subject {number}" for number, line in enumerate(lines)]


def _alternatives(project: Any) -> Any:
    try:
        vocabulary = project.vocab.skos
    except AnnifException:  # the vocabulary was loaded from a table, which has preferred names only
        return lambda uri, language: []
    return lambda uri, language: vocabulary.get_concept_labels(URIRef(uri), _ALTERNATIVE)[language]

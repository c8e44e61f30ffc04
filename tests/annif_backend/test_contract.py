"""The backend's side of the contract with Annif 1.4, by a stand-in for Annif; ``test_annif.py`` runs Annif itself."""

import importlib
import sys
from types import ModuleType, SimpleNamespace

import pytest

NAMES = ["bread", "herbs", "gardens", "sauces", "cats", "music"]
OTHERS = {"bread": "rye", "herbs": "thyme", "gardens": "lawn", "sauces": "gravy", "cats": "kitten", "music": "song"}
URI = "http://example.org/{}".format


class FailedError(Exception):
    """One of Annif's exceptions, which name the backend."""

    def __init__(self, message, project_id=None, backend_id=None):
        super().__init__(message)


EXCEPTIONS = ("AnnifException", "ConfigurationException", "NotInitializedException", "NotSupportedException")
RAISED = {name: type(name, (FailedError,), {}) for name in EXCEPTIONS}


class Learning:
    """Annif's class of backends: settings of the project replace defaults, and those of a call replace both."""

    def __init__(self, project, **settings):
        self.project, self.datadir, self.backend_id, self.said = project, project.datadir, "xmc_tf", []
        self.info = self.warning = self.said.append
        self.params = {"limit": 100, **self.DEFAULT_PARAMETERS, **settings}

    def suggest(self, *texts, **more):
        self.initialize()
        return self._suggest_batch([SimpleNamespace(text=text) for text in texts], self.params | more).array


class Subjects(list):
    """Subjects by number; a project may exclude some."""

    excluded = ()

    @property
    def active(self):
        return [(number, one) for number, one in enumerate(self) if one.labels["en"] not in self.excluded]

    def by_uri(self, uri, warnings=True):
        return next((number for number, one in enumerate(self) if one.uri == uri), None)

    def by_label(self, label, language):
        return next((number for number, one in enumerate(self) if one.labels[language] == label), None)


@pytest.fixture(scope="module")
def backend():
    """The backend's class, imported where ``annif`` is the stand-in."""
    content = {
        "annif": {}, "annif.backend": {"_backend_fns": {}}, "annif.exception": RAISED,
        "annif.backend.backend": {"AnnifLearningBackend": Learning},
        "annif.suggestion": {"SuggestionBatch": lambda array: SimpleNamespace(array=array)},
        "annif.util": {"boolean": lambda value: str(value).lower() in ("1", "yes", "true", "on")},
        "annif.default_config": dict.fromkeys(("Config", "ProductionConfig", "DevelopmentConfig"), object),
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for name, values in content.items():
            module = ModuleType(name)
            vars(module).update(values)
            patch.setitem(sys.modules, name, module)
            above, _, last = name.rpartition(".")
            if above:
                setattr(sys.modules[above], last, module)
        for name in [name for name in sys.modules if name.startswith("xmc_tf.annif")]:
            patch.delitem(sys.modules, name)
        found = importlib.import_module("xmc_tf.annif")
        assert sys.modules["annif.backend"]._backend_fns["xmc_tf"]() is found.XmcBackend
        yield found.XmcBackend
    for name in [name for name in sys.modules if name.startswith("xmc_tf.annif")]:
        del sys.modules[name]


def project_of(folder, analyzer=None):
    folder.mkdir(exist_ok=True)
    subjects = Subjects(SimpleNamespace(uri=URI(name), labels={"en": name}) for name in NAMES)
    alternative = SimpleNamespace(get_concept_labels=lambda uri, kinds: {"en": [OTHERS[str(uri).rpartition("/")[2]]]})
    stemmer = SimpleNamespace(tokenize_words=lambda text, filter: [word.rstrip("s") for word in text.lower().split()])
    return SimpleNamespace(
        datadir=str(folder), subjects=subjects, language="en", vocab_lang="en", analyzer_spec=analyzer,
        analyzer=stemmer, vocab=SimpleNamespace(subjects=subjects, skos=alternative),
    )  # fmt: skip


def corpus_of(documents):
    found = [SimpleNamespace(text=text, subject_set=subjects) for text, subjects in documents]
    return SimpleNamespace(documents=found, is_empty=lambda: not found)


DOCUMENTS = [(f"A {name} on day\n{turn}", {at}) for turn in range(8) for at, name in enumerate(NAMES[:5])]


@pytest.fixture(scope="module")
def trained(backend, tmp_path_factory):
    """A backend that has learned all subjects but the last, with settings as projects.cfg has them: texts."""
    made = backend(project_of(tmp_path_factory.mktemp("annif") / "p"), min_df="1", effort="fast", limit="2")
    assert not made.is_trained
    with pytest.raises(RAISED["NotInitializedException"], match="not found"):
        made.initialize()
    made._train(corpus_of([*DOCUMENTS, ("nothing is known", set()), (" ", {1})]), made.params, jobs=1)
    assert made.is_trained
    assert "training on 40 documents with 6 subjects" in made.said
    return made


def test_suggestions_are_a_matrix_of_documents_and_subjects(trained, backend):
    found = trained.suggest("my kitten", "a new song", "")  # alternative names; music has no document
    assert found.shape == (3, 6)
    assert [NAMES[row.argmax()] for row in found.toarray()[:2]] == ["cats", "music"]
    assert 0 < found.data.min() <= found.data.max() <= 1
    assert all(row.nnz <= 2 for row in found)
    assert found.has_sorted_indices
    again = backend(trained.project, **trained.params)
    assert (again.suggest("my kitten", "a new song", "") != found).nnz == 0
    trained._train("cached", trained.params)
    assert (trained.suggest("my kitten", "a new song", "") != found).nnz == 0


def test_a_text_without_a_known_word_brings_no_suggestions(trained):
    found = trained.suggest("j", "", "zxqv jklm", "a song", "rye", "the kitten j")  # music has a name, but no document
    assert [NAMES[row.argmax()] if row.nnz else None for row in found] == [None, None, None, "music", "bread", "cats"]


def test_settings_of_other_backends_are_named(backend, tmp_path):
    made = backend(project_of(tmp_path / "p"), min_df=1, effort="fast", name="P", language="en", cluster_k=9, ngrams=1)
    (tmp_path / "p" / "xmc_tf-model").mkdir()  # as a training that was interrupted leaves it
    made._train(corpus_of(DOCUMENTS), {**made.params, "max_depth": 2})
    assert [one for one in made.said if "has no effect" in one] == [
        "cluster_k is not a setting and has no effect", "max_depth is not a setting and has no effect",
        "ngrams is not a setting and has no effect: did you mean ngram?",
    ]  # fmt: skip


def test_only_some_subjects_are_suggested(trained, backend, tmp_path, monkeypatch):
    path = tmp_path / "chosen.txt"
    for line, name in ((f"<{URI('cats')}>", "cats"), ("sauces", "sauces")):
        path.write_text(f"{line}\n")
        found = trained.suggest("gravy for a kitten", only_labels=str(path), limit=5)
        assert [NAMES[at] for at in found.indices] == [name]
    path.write_text("unknown\n")
    with pytest.raises(RAISED["ConfigurationException"], match=r"chosen\.txt, line 1: not a subject"):
        trained.suggest("gravy", only_labels=str(path))
    monkeypatch.setattr(Subjects, "excluded", ("cats",))
    assert NAMES.index("cats") not in backend(trained.project, **trained.params).suggest("my kitten").indices


def test_documents_and_a_subject_that_the_vocabulary_has_gained_are_learned(backend, tmp_path):
    project = project_of(tmp_path / "p", analyzer="stemmer")
    last = project.subjects.pop()
    made = backend(project, min_df=1, effort="fast", probabilities="false")
    made._train(corpus_of([*DOCUMENTS, ("bread of an opera", {0})]), made.params)
    project.subjects.append(last)
    made._learn(corpus_of([("operas of day 4", {5}), ("an opera", {5})]), made.params)
    assert [NAMES[at] for at in made.suggest("the operas", limit=1).indices] == ["music"]  # the stem is known
    with pytest.raises(RAISED["NotInitializedException"], match="not found"):
        backend(project_of(tmp_path / "other"))._learn(corpus_of(DOCUMENTS), made.params)


@pytest.mark.parametrize(
    ("documents", "settings", "error", "said"),
    [
        ([], {}, "NotSupportedException", "no documents"),
        ([("nothing is known", set())], {}, "NotSupportedException", "no document has both"),
        (DOCUMENTS, {"effort": "slow"}, "ConfigurationException", "effort"),
        (DOCUMENTS, {"encoder": "nowhere"}, "ConfigurationException", "leave one of them out"),
        (None, {}, "NotInitializedException", "no cached training data"),
    ],
)
def test_errors_are_annifs_own(documents, settings, error, said, backend, tmp_path):
    made = backend(project_of(tmp_path / "p", analyzer="stemmer"), min_df=1, **settings)
    with pytest.raises(RAISED[error], match=said):
        made._train("cached" if documents is None else corpus_of(documents), made.params)

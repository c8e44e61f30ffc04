from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
from annif.backend import backend
from annif.exception import AnnifException, ConfigurationException, NotInitializedException, NotSupportedException
from annif.suggestion import SuggestionBatch
from rdflib import URIRef
from rdflib.namespace import SKOS
from scipy.sparse import csr_array

from xmc_tf.annif.training import read_training_files, train_model, write_training_files
from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, TextFile
from xmc_tf.models.loading import load
from xmc_tf.models.model import Model
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params.values import nearest

_MODEL = "xmc_tf-model"
# Hidden labels, such as misspellings, occur in texts but should not be shown.
_ALTERNATIVE = (SKOS.altLabel, SKOS.hiddenLabel)
# The settings in projects.cfg that Annif itself reads.
_OF_PROJECTS = {"access", "allow_learn", "analyzer", "backend", "language", "name", "transform", "vocab"}


class XmcBackend(backend.AnnifLearningBackend):
    """The Annif backend ``xmc_tf``: rankers over label trees, with subject names as evidence and an optional encoder.

    Words are compared by their lemmas in the language of the project, and long words also by their pieces. If
    projects.cfg has ``analyzer=``, this analyzer normalizes the words of texts and names instead.

    Parameters in projects.cfg:
        effort: number and shapes of the label trees: fast, balanced (default) or best.
        probabilities: whether scores are calibrated probabilities, which needs enough documents. Otherwise they are the
            scores of the rankers, which take less time to train (default: true).
        label_names: whether subject names in a text are evidence for probabilities (default: true).
        ngram: maximum number of words in a feature (default: 2).
        min_df: minimum number of documents that contain a feature (default: 2).
        pieces: number of characters in the pieces of long words, or 0 for no pieces (default: 5).
        beam_size: number of nodes kept at each level of a tree. Larger is slower and more exact (default: as trained).
        seed: the training seed (default: 0).
        keep_training_data: whether the model keeps the features and subjects of its documents, so that ``annif learn``
            can add documents (default: true). Models with an encoder never keep them.
        encoder: folder or name of a pre-trained encoder to fine-tune. It needs the extra ``tf`` (default: none).
        epochs: number of epochs to fine-tune the encoder (default: 3).
        truncate_length: maximum number of tokens of a text that the encoder reads (default: 128).
        limit: maximum number of suggestions (default: 100).
        only_labels: file with the URIs or names of the subjects that may be suggested, one per line (default: all).
    """

    name = "xmc_tf"
    DEFAULT_PARAMETERS: ClassVar[dict[str, Any]] = {
        "effort": "balanced", "probabilities": True, "label_names": True, "ngram": 2, "min_df": 2, "pieces": 5,
        "beam_size": None, "seed": 0, "keep_training_data": True, "encoder": "", "epochs": 3, "truncate_length": 128,
        "only_labels": "",
    }  # fmt: skip
    _model: Model | None = None

    @property
    def is_trained(self) -> bool:
        # Annif calls this before each suggestion; its own implementation walks over all files of the model.
        return (Path(self.datadir) / _MODEL).is_dir()

    def initialize(self, parallel: bool = False) -> None:
        """Load the model, unless it is loaded already."""
        if self._model is not None:
            return
        folder = Path(self.datadir) / _MODEL
        if not folder.is_dir():
            raise NotInitializedException(f"model {folder} not found", backend_id=self.backend_id)
        model = load(folder)
        if model.nr_labels > len(self.project.vocab.subjects):
            raise NotInitializedException(
                f"model {folder} has {model.nr_labels} subjects, more than the vocabulary; train again",
                backend_id=self.backend_id,
            )
        active = [number for number, _ in self.project.subjects.active if number < model.nr_labels]
        if len(active) < model.nr_labels:  # removed from the vocabulary, or excluded by the project
            model.set_output_constraint(active)
        self._model = model

    def _train(self, corpus: Any, params: dict[str, Any], jobs: int = 0) -> None:
        folder = Path(self.datadir)
        self._warn_of_unknown(params)
        if corpus == "cached":
            self.info("Reusing cached training data from previous run.")
        else:
            if corpus.is_empty():
                raise NotSupportedException(f"Cannot train {self.name} project with no documents")
            if params["encoder"] and self.project.analyzer_spec:
                raise ConfigurationException(
                    "an encoder reads whole texts, and an analyzer changes their words: leave one of them out",
                    backend_id=self.backend_id,
                )
            self.info("creating training files")
            count = len(self.project.vocab.subjects)
            if not write_training_files(corpus.documents, folder, count, analysis_of(self.project)):
                raise NotSupportedException(
                    f"Cannot train {self.name} project: no document has both text and subjects of the vocabulary"
                )
        found = read_training_files(folder)
        if found is None:
            raise NotInitializedException("there is no cached training data", backend_id=self.backend_id)
        names = subject_names(self.project)
        self.info(f"training on {found[1].shape[0]} documents with {found[1].shape[1]} subjects")
        try:
            save = train_model(found, names, self.project, params, jobs)
        except InputError as error:
            raise ConfigurationException(str(error), backend_id=self.backend_id) from None
        save(folder / _MODEL)
        self._model = None  # loaded from the folder by the next use

    def _learn(self, corpus: Any, params: dict[str, Any]) -> None:
        folder = Path(self.datadir)
        if not (folder / _MODEL).is_dir():
            raise NotInitializedException(f"model {folder / _MODEL} not found", backend_id=self.backend_id)
        model = load(folder / _MODEL)
        if not isinstance(model, XRLinear):
            raise NotSupportedException(f"{self.name} projects with an encoder cannot learn: train again")
        names = subject_names(self.project)
        with TemporaryDirectory(dir=folder) as place:
            if not write_training_files(corpus.documents, Path(place), len(names), analysis_of(self.project)):
                self.warning("no document has both text and subjects of the vocabulary: nothing was learned")
                return
            found = read_training_files(Path(place))
            assert found is not None
            self.info(f"learning {found[1].shape[0]} documents")
            try:
                # Subjects that the vocabulary has gained since the training follow those of the model.
                grown = model.with_documents(*found, new_labels=names[model.nr_labels :])
            except InputError as error:
                raise NotSupportedException(str(error), backend_id=self.backend_id) from None
            grown.save(folder / _MODEL)
        self._model = None  # loaded from the folder by the next use

    def _suggest_batch(self, documents: list[Any], params: dict[str, Any]) -> SuggestionBatch:
        assert self._model is not None
        beam_size = params["beam_size"]
        analyzed = analysis_of(self.project)
        only = None
        if path := params["only_labels"]:
            try:
                only = chosen_subjects(self.project, str(path), self._model.nr_labels)
            except (InputError, OSError) as error:
                raise ConfigurationException(str(error), backend_id=self.backend_id) from None
        texts = [analyzed(document.text) for document in documents]
        features = self._model.features(texts, threads=1, quiet=True) if isinstance(self._model, XRLinear) else None
        found = self._model.predict(
            texts,
            features,
            beam_size=None if beam_size in (None, "") else int(beam_size),
            only_topk=int(params["limit"]),
            # Annif parallelizes over documents in processes.
            threads=1,
            only_labels=only,
        )
        shape = (len(documents), len(self.project.subjects))
        scores = np.clip(found.data, 0.0, 1.0).astype(np.float32)
        if features is not None:
            scores *= np.repeat(_says_something(self._model, texts, features), np.diff(found.indptr))
        suggestions = csr_array((scores, found.indices, found.indptr), shape=shape)
        suggestions.sort_indices()
        suggestions.eliminate_zeros()
        return SuggestionBatch(suggestions)

    def _warn_of_unknown(self, params: Iterable[str]) -> None:
        """Warn of settings that have no effect, such as those of another backend."""
        settings = [*self.DEFAULT_PARAMETERS, "limit"]
        for name in sorted(set(params) - {*settings, *_OF_PROJECTS}):
            near = nearest(name, settings)
            self.warning(f"{name} is not a setting and has no effect" + (f": did you mean {near}?" if near else ""))


def _says_something(model: Model, texts: list[str], features: Features) -> np.ndarray:
    """Return whether each text has a word that the model knows, or mentions a subject."""
    known: np.ndarray = np.diff(csr_array(features.sparse).indptr) > 0
    unknown = np.flatnonzero(~known)
    if model.evidence is not None and len(unknown):
        mentions = model.evidence.mentions([texts[row] for row in unknown], 1)
        known[unknown[[] if mentions is None else np.unique(mentions.rows)]] = True
    return known


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

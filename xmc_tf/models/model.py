"""The base class of both models: their common interface and shared methods."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, cast

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, chosen_labels
from xmc_tf.data.features import as_features
from xmc_tf.data.vocabularies import LabelHierarchy
from xmc_tf.fusion import ProbabilityModel, bounded_post_processor, decide
from xmc_tf.models.documents import DocumentsLike, FrameColumns, ReadDocuments, read_documents, unexpected_argument
from xmc_tf.models.incremental.training_data import ROWS, UNSEEN, TrainedDocuments
from xmc_tf.models.labels import Labels, measurable, true_labels
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.models.results import Scored, drop_below, fused, named, over_all_labels, pieces, stacked
from xmc_tf.params import PredictionOptions, RankerParams
from xmc_tf.params.pools import FUSED_LABELS
from xmc_tf.params.values import MisfitError
from xmc_tf.tree import LabelTree

if TYPE_CHECKING:
    from xmc_tf.audit import Audit
    from xmc_tf.metrics import Measures
    from xmc_tf.models.explaining.explanation import Explanation
    from xmc_tf.serving.export import Exported, ModelParts

# Modules for metrics, audit and export are imported only when used, because prediction does not need them.


class SearchKeywords(TypedDict, total=False):
    """Keyword arguments that predictions and exports have in common."""

    beam_size: int | None
    only_topk: int | None
    post_processor: str | None
    scores: str | None
    threshold: float | None
    min_precision: float | None


class ExportKeywords(SearchKeywords, total=False):
    """The fields of :class:`PredictionOptions` that an exported model keeps."""

    k: int | None
    """The same as ``only_topk``, which is PECOS's name: number of labels per document."""


class BestKeywords(SearchKeywords, FrameColumns, total=False):
    """The keyword arguments of ``best``, except ``k``, which is a parameter of its own."""

    only_labels: Iterable[str | int] | None
    """Names or numbers of the labels that may be predicted (default: all)."""

    ensemble_method: str | None
    max_pred_chunk: int
    batch_tokens: int
    threads: int
    quiet: bool


class PredictionKeywords(BestKeywords, total=False):
    """The fields of :class:`PredictionOptions` and the column options of a DataFrame, as keyword arguments."""

    k: int | None
    """The same as ``only_topk``."""


class DataKeywords(FrameColumns, total=False):
    """Further keyword arguments of :meth:`XTransformer.train`, including the column options of a DataFrame."""

    unlabelled: DocumentsLike
    """Further texts, without labels: they show which words of ``names`` are rare, if few documents are labelled."""


class TrainingKeywords(DataKeywords, total=False):
    """Further keyword arguments of :meth:`XRLinear.train`."""

    probabilities: bool | None
    """Predict calibrated probabilities, learned from held-out documents, instead of the rankers' scores. They also
    rank labels better (default: true if there are enough documents)."""


def read_keywords(
    keywords: Mapping[str, Any],
) -> tuple[PredictionOptions, FrameColumns, Iterable[str | int] | None]:
    """Split keyword arguments into options, DataFrame columns, and the labels that may be predicted (None: all)."""
    columns = {name: value for name, value in keywords.items() if name in FrameColumns.__annotations__}
    options = {name: value for name, value in keywords.items() if name not in columns}
    if unknown := set(options) - set(PredictionKeywords.__annotations__):
        raise unexpected_argument(min(unknown), PredictionKeywords.__annotations__)
    only_labels = options.pop("only_labels", None)
    if (k := options.pop("k", None)) is not None:
        if options.get("only_topk") is not None:
            raise InputError("k and only_topk are the same option", fix="leave one of them out")
        options["only_topk"] = k
    try:
        return PredictionOptions(**options), cast(FrameColumns, columns), only_labels
    except MisfitError as misfit:
        if k is None or misfit.key != "only_topk":
            raise
        raise InputError(
            f"k {misfit.fault}", expected=misfit.expected, received=misfit.received, fix=misfit.fix
        ) from None


class Model(ABC):
    """The interface that :class:`~xmc_tf.XTransformer` and :class:`~xmc_tf.XRLinear` have in common.

    Example:
        >>> model: Model = load("model")
        >>> model.best(["gradient of a sparse matrix"], k=3)
    """

    names: list[str] | None
    """Label names, or None."""
    metadata: ModelMetadata
    """Parameters, shapes, seed and versions, as ``params.json`` contains them."""
    tree: LabelTree
    """The first label tree of the rankers."""
    hierarchy: LabelHierarchy | None
    """The broader terms of the labels, or None."""
    evidence: ProbabilityModel | None
    """The fusion that turns scores into probabilities, or None."""

    @property
    @abstractmethod
    def trained_documents(self) -> TrainedDocuments | None:
        """The documents that the model was trained on, if they were texts."""

    @property
    @abstractmethod
    def nr_labels(self) -> int:
        """Number of labels, including those that were added after training."""

    @property
    @abstractmethod
    def only_topk(self) -> int:
        """Default number of labels to predict per document."""

    @property
    @abstractmethod
    def post_processor(self) -> str:
        """Name of the function that turns the rankers' raw scores into final scores."""

    @property
    @abstractmethod
    def more_trees(self) -> Sequence[LabelTree]:
        """All label trees except the first."""

    def predict(self, texts: DocumentsLike, X: Any = None, **options: Unpack[PredictionKeywords]) -> csr_matrix:
        """Return the scores of the best labels: a sparse matrix of documents × labels, each row sorted by score.

        Args:
            texts: the documents: a list of texts, a single text, or a DataFrame with the columns that the model was
                trained on. For an XRLinear that was trained on features: a matrix of documents × features.
            X: features of the documents. Required for an XTransformer that was trained with features. For an XRLinear:
                the TF-IDF features, if they have already been computed.
            **options: the fields of :class:`PredictionOptions`, such as ``only_topk`` (or ``k``) and
                ``min_precision``; ``only_labels``, the names or numbers of the labels that may be predicted; and
                ``text``, one or several text columns of a DataFrame (default: the columns used in training).
        """
        chosen, columns, only_labels = read_keywords(options)
        if only_labels is not None:
            return self.only(only_labels).predict(texts, X, **vars(chosen), **columns)
        documents, X = self._checked(self._read(texts, columns=columns), X, chosen)
        trained = chosen.ensemble_method in (None, self.metadata.content.get("ensemble_method"))
        evidence = self.evidence if trained else None
        decision = decide(chosen, None if evidence is None else evidence.fusion)
        if not decision.probable:
            evidence = None
        topk = chosen.only_topk or self.only_topk
        if evidence is not None:
            bounded = bounded_post_processor(self.post_processor)
            chosen = replace(chosen, only_topk=max(topk, FUSED_LABELS), scores=None, post_processor=bounded)
        parts = []
        for some, some_X in pieces(documents, X, chosen.max_pred_chunk):
            scored = self._scored(some, some_X, chosen)
            if evidence is not None:
                found = fused(
                    evidence, scored, None if isinstance(some, Features) else some, topk, decision.threshold,
                    chosen.threads,
                )  # fmt: skip
            else:
                found = over_all_labels(scored.labels, self.nr_labels, self._allowed)
                found = found if decision.threshold is None else drop_below(found, decision.threshold)
            parts.append(found)
        return stacked(parts, self.nr_labels)

    def predict_proba(self, texts: DocumentsLike, X: Any = None, **options: Unpack[PredictionKeywords]) -> csr_matrix:
        """Return the same scores as :meth:`predict`, in the form of scikit-learn: each row sorted by label.

        Only the best labels have entries; ``toarray()`` gives an array of documents × labels. The scores are calibrated
        probabilities if the model was trained to predict them.

        Args:
            texts: documents, as in :meth:`predict`.
            X: features, as in :meth:`predict`.
            **options: as in :meth:`predict`.
        """
        found = self.predict(texts, X, **options)
        found.sort_indices()
        return found

    @abstractmethod
    def _checked(self, read: ReadDocuments, X: Any, options: PredictionOptions) -> tuple[Any, Features | None]:
        """Return the texts or features to predict, and further features; raise an error for what does not fit."""

    @abstractmethod
    def _scored(self, documents: Any, X: Features | None, options: PredictionOptions) -> Scored:
        """Return the best labels with the rankers' scores."""

    def set_output_constraint(self, labels: Iterable[str | int] | None) -> None:
        """Restrict predictions to some labels. The model folder does not change.

        Args:
            labels: names or numbers of the labels that may be predicted; None for all.
        """
        chosen = None if labels is None else chosen_labels(labels, self.names, self.nr_labels)
        if self.evidence is not None:
            self.evidence.allowed = chosen
        self._restrict(chosen)

    @abstractmethod
    def _restrict(self, chosen: np.ndarray | None) -> None:
        """Restrict the predictions of the rankers and the label head to these labels."""

    def only(self, labels: Iterable[str | int]) -> Self:
        """Return a model that predicts only some labels. It shares its parts with this model, which does not change.

        Example:
            >>> some = model.only([0, 2])
            >>> some.best(["gradient of a sparse matrix"], k=1)

        Args:
            labels: names or numbers of the labels to predict. Labels that this model may not predict are ignored.

        Raises:
            InputError: a label does not exist, or this model may predict none of the labels.
        """
        chosen, allowed = chosen_labels(labels, self.names, self.nr_labels), self._allowed
        found = chosen if allowed is None else np.intersect1d(chosen, allowed)
        if not len(found):
            raise InputError("none of the labels may be predicted", expected="labels that this model may predict")
        return self._only(found, None if self.evidence is None else replace(self.evidence, allowed=found))

    @property
    @abstractmethod
    def _allowed(self) -> np.ndarray | None:
        """The labels that may be predicted; None: all."""

    @abstractmethod
    def _only(self, chosen: np.ndarray, evidence: ProbabilityModel | None) -> Self: ...

    @abstractmethod
    def explain(self, text: str, k: int = 5, *, beam_size: int | None = None) -> "Explanation":
        """Explain the best labels of a text: the words and the path through the tree that led to them.

        Args:
            text: a single document.
            k: number of labels to explain.
            beam_size: number of nodes kept at each level above the labels (default: the model's setting).
        """

    def save(self, folder: str | Path) -> None:
        """Write the model folder atomically. An existing model there is replaced; other files are kept.

        Args:
            folder: the model folder. With several ranks, only one of them may write it.
        """
        self._save(Path(folder))

    @abstractmethod
    def _save(self, folder: Path) -> None: ...

    @abstractmethod
    def export_parts(self) -> "ModelParts":
        """Return the parts of the model that a SavedModel contains."""

    @abstractmethod
    def _for_audit(self, read: ReadDocuments, X: Any, threads: int) -> tuple[Features, RankerParams]:
        """Return the features that the rankers read for these documents, and the rankers' training parameters."""

    def best(
        self, texts: DocumentsLike, k: int = 5, *, X: Any = None, **options: Unpack[BestKeywords]
    ) -> list[list[tuple[str, float]]]:
        """Return the names and scores of the k best labels of each document, best first.

        A label without a name is returned as its number.

        Args:
            texts: documents, as in :meth:`predict`.
            k: number of labels per document; with a threshold, the maximum number.
            X: features, as in :meth:`predict`.
            **options: as in :meth:`predict`.
        """
        predicted = self.predict(texts, X, **cast(PredictionKeywords, {"only_topk": k, **options}))
        return list(named(predicted, self.names))

    def evaluate(
        self,
        texts: DocumentsLike,
        labels: Labels | None = None,
        *,
        X: Any = None,
        ks: Sequence[int] = (1, 3, 5, 10),
        k: int | None = None,
        rows: str = UNSEEN,
        **columns: Unpack[FrameColumns],
    ) -> "Measures":
        """Measure how well the model predicts documents with known labels.

        Documents that the model was trained on are left out, and a warning counts them. They are recognized by their
        texts; models that read features have no record of them.
        Documents without a text are left out too and, if labels are names, those without a label; in a matrix of
        labels, a document without any counts as 0.

        Example:
            >>> print(model.evaluate(TextFile("X.tst.txt"), load_matrix("Y.tst.npz")))

        Args:
            texts: documents, as in :meth:`train`.
            labels: their true labels, as in :meth:`train`. Labels unknown to the model count as misses, and a warning
                lists examples of them.
            X: features, as in :meth:`predict`.
            ks: cut-offs of the metrics, such as 1, 3 and 5 for P@1, P@3 and P@5.
            k: a single cut-off, instead of ``ks``.
            rows: "unseen" leaves the training documents out; "all" measures on all documents.
            **columns: columns of a DataFrame, as in :meth:`train`.
        """
        from xmc_tf.metrics import evaluate
        from xmc_tf.metrics.measures import check_ks

        read = self._read(texts, labels, columns, labelled=True)
        truth = true_labels(read.labelled(), read.documents, self.nr_labels, self.names)
        ks, trained, documents = check_ks(ks if k is None else (k,)), self.trained_documents, read.documents
        if rows not in ROWS:
            raise InputError("rows is unknown", expected=" or ".join(ROWS), received=repr(rows))
        measured = np.arange(truth.shape[0]) if read.labelled().is_matrix else measurable(read.texts, truth)
        if rows == UNSEEN and trained is not None and read.texts is not None:
            unseen = trained.unseen([read.texts[row] for row in measured], "texts", 'rows="all"')
            measured = measured if unseen is None else measured[unseen]
        if len(measured) < truth.shape[0]:
            documents = documents.rows(measured) if read.texts is None else [read.texts[row] for row in measured]
            truth, X = truth[measured], None if X is None else as_features(X).rows(measured)
        predicted = self.predict(documents, X, only_topk=ks[-1])
        return evaluate(truth, over_all_labels(predicted, truth.shape[1], None), ks)

    def audit(
        self,
        texts: DocumentsLike,
        labels: Labels | None = None,
        *,
        X: Any = None,
        documents: Sequence[str] | None = None,
        most: int = 500,
        threads: int = -1,
        **columns: Unpack[FrameColumns],
    ) -> "Audit":
        """Find labels that are probably missing or wrong, and return them with the reasons.

        The documents may be the training documents: each is judged by rankers that were trained without it. An encoder
        is not retrained, however. It has seen the labels of its training documents, so fewer errors are found among
        them. See the how-to guide on auditing labels.

        Args:
            texts: documents, as in :meth:`train`.
            labels: their labels, as in :meth:`train`. Labels unknown to the model are ignored.
            X: features, as in :meth:`predict`.
            documents: names of the documents (default: their numbers).
            most: maximum number of findings of each kind.
            threads: number of threads; -1: one per core. The result does not depend on it.
            **columns: columns of a DataFrame, as in :meth:`train`.

        Raises:
            InputError: there are too few documents, or they do not fit the model.
        """
        from xmc_tf.models.auditing import audit_documents

        if not {"seed", "train_params"} <= self.metadata.content.keys():  # such as a model of PECOS
            raise InputError("this model cannot be audited", expected="a model trained by xmc_tf")
        read = self._read(texts, labels, columns, labelled=True)
        features, params = self._for_audit(read, X, threads)
        return audit_documents(
            self,  # type: ignore[arg-type]  # both kinds of models are made of such parts
            features, read.texts, read.labelled(), params, documents=documents, most=most, threads=threads,
        )  # fmt: skip

    def export(self, folder: str | Path, *, precision: str = "fp32", **options: Unpack[ExportKeywords]) -> "Exported":
        """Export the model as a SavedModel that maps text to label names, for a standard build of TensorFlow Serving.

        Example:
            >>> print(model.export("served/1", only_topk=10, beam_size=20).table())

        Args:
            folder: output folder. TensorFlow Serving takes its name as the version.
            precision: number format of the rankers' weights: "fp32", "fp16", or "int8", which has a scale for each
                node.
            **options: fields of :class:`PredictionOptions` to build into the exported model: ``only_topk`` (or ``k``),
                ``beam_size``, ``post_processor``, ``scores``, ``threshold`` and ``min_precision``.
        """
        from xmc_tf.serving.export import export_model  # it loads TensorFlow

        chosen, _, only_labels = read_keywords(options)
        if only_labels is not None:
            raise InputError(
                "an export predicts all labels of its model", received="only_labels",
                fix="use xmc-tf serve, where a request can name labels, or remove the other labels from a linear model "
                "(XRLinear.without_labels)",
            )  # fmt: skip
        return export_model(self.export_parts(), folder, chosen, precision=precision)

    def _read(
        self, documents: Any, labels: Any = None, columns: FrameColumns | None = None, *, labelled: bool = False
    ) -> ReadDocuments:
        return read_documents(documents, labels, columns, trained=self.metadata.columns, labelled=labelled)

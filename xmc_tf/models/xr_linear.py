import dataclasses
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, as_features, check_pair, check_training_input
from xmc_tf.fusion import ProbabilityModel, bounded_post_processor
from xmc_tf.label_names import label_vocabulary
from xmc_tf.models.documents import DocumentsLike, FeaturesLike, FrameColumns, ReadDocuments, read_documents
from xmc_tf.models.folder import read_metadata, read_names
from xmc_tf.models.labels import Labels, label_matrix
from xmc_tf.models.linear.parts import LinearParts, write_model
from xmc_tf.models.model import Model, TrainingKeywords
from xmc_tf.models.parts import LazyModelFolder
from xmc_tf.models.results import Scored, labels_of_rankers
from xmc_tf.params import PredictionOptions, RankerParams, XRLinearParams
from xmc_tf.params.pools import FUSED_LABELS
from xmc_tf.rankers.ensemble import trees_of
from xmc_tf.rankers.xlinear import XLinear
from xmc_tf.tree import LabelTree

if TYPE_CHECKING:
    from xmc_tf.models.explaining.explanation import Explanation
    from xmc_tf.serving.export import ModelParts

# Modules for training, updates, explanations and metrics are imported only when used; prediction needs none.


@dataclass(eq=False, repr=False)
class XRLinear(LinearParts, Model):
    """XR-Linear: linear rankers over label trees, with their vectorizer and the label names.

    Train a model with ``XRLinear.train(texts, labels)``, or load one with ``XRLinear.load(folder)``. ``best`` returns
    the names and scores of the best labels, and ``predict`` returns a matrix of scores. ``explain`` shows why a label
    was predicted, ``evaluate`` measures the quality, and ``save`` and ``export`` write model folders.

    Example:
        >>> model = XRLinear.load("model")
        >>> model.best(["gradient of a sparse matrix"], k=3)
        [[('scipy.sparse', …), …]]
    """

    __signature__ = inspect.Signature()  # users create models with train and load, not from parts

    def _checked(self, read: ReadDocuments, X: Any, options: PredictionOptions) -> tuple[Any, Features | None]:
        options.refuse(dict.fromkeys(("ensemble_method", "batch_tokens"), "a linear model has no encoder"))
        return read.documents, None if X is None else as_features(X)

    def _scored(self, documents: Any, X: Features | None, options: PredictionOptions) -> Scored:
        if X is None:
            is_text = not isinstance(documents, Features)
            X = self.features(documents, options.threads, options.quiet) if is_text else documents
        found = self.ranker.predict(
            X, beam_size=options.beam_size, only_topk=options.only_topk, post_processor=options.post_processor,
            threads=options.threads,
        )  # fmt: skip
        return Scored(found, information=self.tfidf.information(X.sparse) if self.reads_text else None)

    @property
    def _allowed(self) -> np.ndarray | None:
        return self.ranker.allowed if self.evidence is None else self.evidence.allowed

    def _only(self, chosen: np.ndarray, evidence: ProbabilityModel | None) -> Self:
        if self.reads_text and self.own_tfidf is None:
            self.own_tfidf = self.tfidf  # once for both
        ranker = self.ranker.only(labels_of_rankers(chosen, self.ranker.nr_labels))
        return dataclasses.replace(self, ranker=ranker, evidence=evidence)

    def _restrict(self, chosen: np.ndarray | None) -> None:
        known = None if chosen is None else labels_of_rankers(chosen, self.ranker.nr_labels)
        self.ranker.set_output_constraint(known)

    def explain(self, text: str | DocumentsLike, k: int = 5, *, beam_size: int | None = None) -> "Explanation":
        """Explain the best labels of a text: the words and the path through the tree that led to them.

        Example:
            >>> print(model.explain("gradient of a sparse matrix", k=1))

        Args:
            text: a single document: a text, a row of features, or a list or DataFrame with one document.
            k: number of labels to explain.
            beam_size: number of nodes kept at each level above the labels (default: the model's setting).
        """
        from xmc_tf.models.explaining.explain import explain_linear

        return explain_linear(
            self, self._read(text),
            lambda one, most: self.predict(one, only_topk=most or k, beam_size=beam_size, threads=1),
        )  # fmt: skip

    def _for_audit(self, read: ReadDocuments, X: Any, threads: int) -> tuple[Features, RankerParams]:
        if X is None:
            X = read.features if read.texts is None else self.features(read.texts, threads)
        return as_features(X), RankerParams.from_json(self.metadata.train_params)

    def with_documents(
        self,
        texts: DocumentsLike,
        labels: Labels | None = None,
        *,
        new_labels: bool | Sequence[str] = False,
        exact: bool = False,
        threads: int = -1,
        **columns: Unpack[FrameColumns],
    ) -> Self:
        """Return the model with additional documents; only the clusters of their labels change.

        The vocabulary, word weights, label tree and calibration do not change. The new documents are added to the
        model's training data, so that the new model can be extended again. Documents that the model already has with
        these labels are left out, and a warning counts them.

        Example:
            >>> texts, labels = ["soup with fresh herbs", "herbs for a garden"], [["cooking"], ["gardening"]]
            >>> model = XRLinear.train(texts, labels, keep_training_data=True)
            >>> grown = model.with_documents(["herbs in spring"], [["seasons"]], new_labels=True)

        Args:
            texts: the documents to add, as in :meth:`train`.
            labels: their labels, as in :meth:`train`. At least one document must have a label.
            new_labels: True to add the labels that the model does not have yet, or the names of the new labels in the
                order of their numbers, each with its alternative names after tabs.
            exact: whether to solve the clusters again on all their documents, with the same result as training with the
                same tree. By default, only the new documents are used to update the weights, which is faster.
            threads: number of threads; -1: one per core. The result does not depend on it.
            **columns: columns of a DataFrame, as in :meth:`train`.

        Raises:
            InputError: the model has not kept its training data, or a label is unknown.
        """
        from xmc_tf.models.incremental.documents import with_documents

        read = self._read(texts, labels, columns, labelled=True)
        return with_documents(self, read, new_labels, exact=exact, threads=threads)

    def with_corrections(
        self, texts: DocumentsLike, labels: Labels | None = None, *, threads: int = -1, **columns: Unpack[FrameColumns]
    ) -> Self:
        """Return the model with corrected labels for some of its training documents.

        Only the clusters that change are solved again. Their weights are the same as after training on the corrected
        labels with the same tree. The vocabulary, label tree and calibration do not change. Documents are recognized by
        their features. Documents that the model was not trained on are left out, and a warning counts them.

        Example:
            >>> texts, labels = ["soup with fresh herbs", "herbs for a garden"], [["cooking"], ["gardening"]]
            >>> model = XRLinear.train(texts, labels, keep_training_data=True)
            >>> corrected = model.with_corrections(["soup with fresh herbs"], [["cooking", "gardening"]])

        Args:
            texts: the documents to correct, as in :meth:`train`.
            labels: all labels that these documents should have, as in :meth:`train`.
            threads: number of threads; -1: one per core. The result does not depend on it.
            **columns: columns of a DataFrame, as in :meth:`train`.

        Raises:
            InputError: the model has not kept its training data, a label is unknown, or it was trained on none of the
                documents.
        """
        from xmc_tf.models.incremental.labels import with_corrections

        return with_corrections(self, self._read(texts, labels, columns, labelled=True), threads)

    def without_labels(self, labels: Iterable[str | int]) -> Self:
        """Return the model without some labels. Nothing is retrained; the remaining labels are renumbered in order.

        Example:
            >>> texts, labels = ["soup with fresh herbs", "herbs for a garden"], [["cooking"], ["gardening"]]
            >>> XRLinear.train(texts, labels).without_labels(["gardening"]).names
            ['cooking']

        Args:
            labels: names or numbers of the labels to remove.

        Raises:
            InputError: there is no label to remove, a label does not exist, or no label with documents would remain.
        """
        from xmc_tf.models.incremental.labels import without_labels

        return without_labels(self, labels)

    def with_merged_labels(self, groups: Iterable[Iterable[str | int]], *, threads: int = -1) -> Self:
        """Return the model with some labels merged: documents with any label of a group get the group's first label.

        Only the clusters that change are solved again. If the model uses label names as evidence, the names of the
        merged labels become alternative names of the label that remains.

        Example:
            >>> texts, labels = ["soup with herbs", "herbs for a garden"], [["cooking"], ["gardening"]]
            >>> model = XRLinear.train(texts, labels, keep_training_data=True)
            >>> model.with_merged_labels([["cooking", "gardening"]]).names
            ['cooking']

        Args:
            groups: groups of label names or numbers to merge. The first label of each group remains.
            threads: number of threads; -1: one per core. The result does not depend on it.

        Raises:
            InputError: the model has not kept its training data, or a label is unknown or occurs twice.
        """
        from xmc_tf.models.incremental.labels import with_merged_labels

        return with_merged_labels(self, groups, threads)

    def _save(self, folder: Path) -> None:
        write_rankers = [ranker.save for ranker in trees_of(self.ranker)]
        write_model(folder, self, write_rankers, self.tfidf.save if self.reads_text else None)

    def export_parts(self) -> "ModelParts":
        """Return the parts of the model that a SavedModel contains."""
        from xmc_tf.serving.export import ModelParts
        from xmc_tf.serving.fused_search import EvidenceParts

        evidence = None
        if self.evidence is not None:
            post = bounded_post_processor(self.post_processor)
            evidence = EvidenceParts(self.evidence.fusion, FUSED_LABELS, post, self.evidence.names)
        return ModelParts(self.ranker, self.names, self.tfidf if self.reads_text else None, evidence=evidence)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load a model, or rankers trained with PECOS, from a folder.

        Args:
            folder: a model folder of xmc_tf, or PECOS's folder of an XLinear model.
        """
        folder = Path(folder)
        if not (folder / "params.json").exists() and (folder / "param.json").exists():
            from xmc_tf.rankers.problems import whole_chain  # it loads what only training needs

            ranker = XLinear.load(folder)
            clusters = [level.clusters for level in ranker.levels]
            return cls(ranker, LabelTree.from_chain(whole_chain(clusters, ranker.nr_labels, RankerParams())))
        metadata = read_metadata(folder)
        if metadata.model == "XTransformer":
            raise InputError(
                f"{folder} is an XR-Transformer model", expected="a linear model, as xmc_tf.linear.train writes it",
                fix="use python -m xmc_tf.predict (in Python: XTransformer.load); its linear rankers alone are in "
                f"{folder / 'ranker'}",
            )  # fmt: skip
        parts = LazyModelFolder.at(folder, metadata)
        nr_labels = parts.ranker.nr_labels if parts.evidence is None else parts.evidence.nr_labels
        names = read_names(folder, nr_labels)
        return cls(
            parts.ranker, parts.tree, names, metadata, folder, evidence=parts.evidence, more_trees=parts.more_trees,
            hierarchy=parts.hierarchy,
        )  # fmt: skip

    @classmethod
    def train(
        cls,
        texts: DocumentsLike,
        labels: Labels | None = None,
        *,
        names: Sequence[str] | None = None,
        tree: LabelTree | FeaturesLike | None = None,
        params: XRLinearParams | None = None,
        label_names: bool | None = None,
        threads: int = -1,
        seed: int = 0,
        effort: str | None = None,
        keep_training_data: bool = False,
        **further: Unpack[TrainingKeywords],
    ) -> Self:
        """Train a model.

        Example:
            >>> model = XRLinear.train(["soup with fresh herbs", "herbs for a garden"], [["cooking"], ["gardening"]])
            >>> model.save("model")
            >>> frame = {"text": ["soup with fresh herbs", "herbs for a garden"], "topic": ["cooking", "gardening"]}
            >>> model = XRLinear.train(frame, text="text", labels="topic")

        Args:
            texts: one text per document, as a list, Series, array, generator or :class:`~xmc_tf.TextFile`; a DataFrame
                of pandas, Polars or PyArrow, or a dictionary of columns; or a matrix of documents × features, for a
                model that reads features instead of texts. A missing text counts as an empty one.
            labels: for each document, a list of label names, a string of names with a separator between them, or a
                single name (the documents may be in a list, Series, array or generator); a matrix of documents ×
                labels; or the name of the DataFrame's label column (default: the column ``labels``, or a guess). None
                if no document is labelled: the model is then trained on ``names`` alone, and the texts, of which there
                may be none, only show which words are rare.
            names: label names, in the order of the columns (default: the names in ``labels``, sorted).
            tree: a label tree, or a matrix of labels × features to build it from (default: built from the features of
                the labels' documents).
            params: options of features, tree and rankers (default: all defaults).
            label_names: whether to use label names that occur in texts as evidence for probabilities. Training takes up
                to twice as long, or longer with few documents. None: only if there are texts and names.
            threads: number of threads; -1: one per core. The model does not depend on it.
            seed: random seed of the rankers. The tree has its own seed, ``params.tree.seed``.
            effort: "fast", "balanced" or "best": choose the number and shapes of the trees and the weight of the loss
                to suit the data; see :func:`xmc_tf.params.params_of_effort` (default: one tree, as ``params`` specify).
            keep_training_data: whether to store the documents' features and labels in the model, so that it can be
                updated with :meth:`with_documents`. They take about 8 bytes for each distinct word or n-gram of a
                document.
            **further: ``text``: the name of a DataFrame's text column, or several names; ``label_separator``: the
                string between the labels of a document (default: guessed). The model remembers both.
                ``fold_labels``: whether labels that differ only in case or blanks are one. ``keep_na_labels``: whether
                "nan", "None", "null", "N/A" and "-" are labels. ``probabilities``:
                whether to predict calibrated probabilities, learned on held-out documents, instead of the rankers'
                scores. Probabilities also rank labels better (default: true if there are enough documents).
                ``unlabelled``: further texts, without labels; they show which words of ``names`` are rare, which a few
                labelled documents do not.

        Raises:
            InputError: the inputs do not fit together, or a label is not in ``names``.
        """
        from xmc_tf.models.linear.names_only import train_on_names
        from xmc_tf.models.linear.training import LinearData, LinearOptions, train_linear

        own = {"probabilities", "unlabelled"}
        columns = cast(FrameColumns, {name: one for name, one in further.items() if name not in own})
        read = read_documents(texts, labels, columns, training=True, labelled=True)
        options = LinearOptions(
            params or XRLinearParams(), effort=effort, probabilities=further.get("probabilities"),
            label_names=label_names, keep_training_data=keep_training_data, seed=seed, threads=threads,
        )  # fmt: skip
        if labels is None and read.labels is None and names is not None:
            return cls.of(train_on_names(list(names), read.only_texts(), options))
        Y, lines = label_matrix(read.labelled(), names)
        check_pair(read.documents, Y, "texts", "labels")
        X = read.documents if read.texts is None else None
        check_training_input(
            Y=Y, X=X, texts=read.texts, names=None if lines is None else label_vocabulary(lines).preferred
        )
        own_tree = tree if isinstance(tree, LabelTree) else None
        features = as_features(tree) if tree is not None and own_tree is None else None
        unlabelled = read_documents(further.get("unlabelled", []), name="unlabelled", training=True).only_texts()
        data = LinearData(Y, read.texts, X, lines=lines, tree=own_tree, label_features=features, unlabelled=unlabelled)
        model = cls.of(train_linear(data, options))
        model.metadata = model.metadata.with_columns(read.columns)
        return model

    @classmethod
    def of(cls, parts: LinearParts) -> Self:
        """Return a model made of these parts.

        Args:
            parts: the parts, as returned by training.
        """
        return cls(**{one.name: getattr(parts, one.name) for one in dataclasses.fields(parts)})

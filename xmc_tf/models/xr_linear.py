"""The whole linear model, from raw text or features to label names, in one folder.

params.json   all parameters, versions, shapes, seed
labels.txt    label names, where given
tree/         the label tree
features/     the fitted TF-IDF, where it was trained on text
ranker/       the rankers, in PECOS's XLinear format
label_names/  where names of labels are evidence: the names, and the worth of their matches
fusion/       with them: the fusion of all scores into one probability
ensemble/     further trees and their rankers, where there are several: 1/tree, 1/ranker, …
training/     features and labels of the training documents, where the model keeps them to grow
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from xmc_tf.data import check_pair, check_training_input
from xmc_tf.fusion import POOL, bounded_post_processor
from xmc_tf.linear.ensemble import rankers_of, trees_of
from xmc_tf.models.documents import DocumentsLike, FeaturesLike, read_documents
from xmc_tf.models.labels import Labels, label_matrix, true_labels
from xmc_tf.models.linear.folder import load_model, write_model
from xmc_tf.models.linear.growth import GrowingModel
from xmc_tf.models.results import over_all_labels
from xmc_tf.params import PredictionOverrides, XRLinearParams, params_of_effort
from xmc_tf.tree import LabelTree

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf
    from xmc_tf.metrics import Measures
    from xmc_tf.models.documents import FrameColumns
    from xmc_tf.models.explaining.explanation import Explanation
    from xmc_tf.models.linear.training import RankerData
    from xmc_tf.serving.export import Exported, ExportSettings, ModelParts

# Training, growing, explaining and measuring are imported when they are used: prediction does not need them.


@dataclass(eq=False, repr=False)
class XRLinear(GrowingModel):
    """XR-Linear with its vectorizer, label tree and label names.

    Example:
        >>> model = XRLinear.load("model")
        >>> model.best(["gradient of a sparse matrix"], k=3)
        [[('scipy.sparse', 0.71), …]]

    Args:
        ranker: the trained rankers; of several trees, an ensemble.
        tree: the label tree; of several, the first.
        names: label names, or None.
        metadata: the model metadata of ``params.json``.
        folder: where it was loaded from.
        own_tfidf: the vectorizer of a model that was not loaded from a folder.
        evidence: the names of the labels as evidence, and the fusion into one probability; None: the model predicts
            the rankers' scores.
        more_trees: the label trees after the first.
        own_training: the training data that a model keeps which was not loaded from a folder.
    """

    def explain(self, text: str | DocumentsLike, k: int = 5, *, beam_size: int | None = None) -> "Explanation":
        """Explain the best labels of a text: the words and the path through the tree that led to them.

        Example:
            >>> print(model.explain("gradient of a sparse matrix", k=1))

        Args:
            text: the document: a text, the features of one document, or a list or DataFrame with one document.
            k: number of labels.
            beam_size: number of nodes kept at each level above the labels. None: the model's default.
        """
        from xmc_tf.models.explaining.linear import explain_linear

        return explain_linear(self, self._read(text), k, beam_size)

    def evaluate(
        self,
        texts: DocumentsLike,
        labels: Labels | None = None,
        *,
        ks: Sequence[int] = (1, 3, 5, 10),
        **columns: "Unpack[FrameColumns]",
    ) -> "Measures":
        """Measure the model's predictions of documents whose labels are known.

        Example:
            >>> print(model.evaluate(TextFile("X.tst.txt"), load_matrix("Y.tst.npz")))

        Args:
            texts: texts, features or a DataFrame, as :meth:`train` takes them.
            labels: labels, as :meth:`train` takes them. Labels that the model does not know count as misses; a warning
                names them.
            ks: cut-offs: the numbers of best labels that are measured.
            **columns: of a DataFrame, as for :meth:`train`.
        """
        from xmc_tf.metrics import evaluate
        from xmc_tf.metrics.measures import check_ks

        read = self._read(texts, labels, columns, labelled=True)
        truth = true_labels(read.labelled(), read.documents, self.nr_labels, self.names)
        ks = check_ks(ks)
        predicted = self.predict(read.documents, only_topk=ks[-1])
        return evaluate(truth, over_all_labels(predicted, truth.shape[1], None), ks)

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder, completely or not at all; an older model there is replaced.

        Args:
            folder: folder of the model.
        """
        write_model(
            folder, [self.tree, *self.more_trees], self.names, self.metadata,
            [ranker.save for ranker in trees_of(self.ranker)],
            self.tfidf.save if self.reads_text else None, self.evidence, self.training_data,
        )  # fmt: skip

    def export(self, folder: str | Path, settings: "ExportSettings | None" = None) -> "Exported":
        """Export the model as a SavedModel, from text to label names, which a stock TensorFlow Serving loads.

        Example:
            >>> print(model.export("served/1", ExportSettings(only_topk=10, beam_size=20)).table())

        Args:
            folder: output folder; for a server, its name is the version.
            settings: options of the exported model.
        """
        from xmc_tf.serving.export import export_model  # it loads TensorFlow

        return export_model(self.export_parts(), folder, settings)

    def export_parts(self) -> "ModelParts":
        """Return the parts that a SavedModel of this model is made of."""
        from xmc_tf.serving.evidence import EvidenceParts
        from xmc_tf.serving.export import ModelParts

        evidence = None
        if self.evidence is not None and self.reads_text:
            evidence = EvidenceParts(
                self.evidence.names, self.evidence.fusion, POOL, bounded_post_processor(self.post_processor)
            )
        return ModelParts(self.ranker, self.names, self.tfidf if self.reads_text else None, evidence=evidence)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load a model, or rankers that PECOS trained, from a folder.

        Args:
            folder: a model of xmc_tf, or PECOS's folder of an XLinear model.
        """
        return load_model(cls, Path(folder))

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
        **columns: "Unpack[FrameColumns]",
    ) -> Self:
        """Train a model.

        Example:
            >>> model = XRLinear.train(["soup with fresh herbs", "herbs for a garden"], [["cooking"], ["gardening"]])
            >>> model.save("model")
            >>> frame = {"text": ["soup with fresh herbs", "herbs for a garden"], "topic": ["cooking", "gardening"]}
            >>> model = XRLinear.train(frame, text="text", labels="topic")

        Args:
            texts: one text per document (a list, a Series, an array, a generator, a :class:`~xmc_tf.TextFile`); or a
                DataFrame of pandas, Polars or PyArrow, or a dictionary of columns; or features, documents × features,
                for a model that reads features. A missing text is an empty one.
            labels: for each document a list of label names, a text of names with a separator between them, or a single
                name; or a matrix of documents × labels; or the name of the DataFrame's column of labels (default: the
                column ``labels``, or guessed). Series, arrays and generators are lists too.
            names: label names, in the order of the columns (default: the names in ``labels``, sorted).
            tree: label tree, or features of the labels (labels × features) to build it from (default: built from the
                features of the labels' documents).
            params: options of features, tree and rankers (default: all defaults).
            label_names: use the names of labels in texts as evidence, and predict calibrated probabilities. Training
                takes up to twice the time, with few documents more. None: if there are texts and names.
            threads: number of threads; -1: one per core. The model does not depend on it.
            seed: random seed of the rankers; the tree has its own, ``params.tree.seed``.
            effort: "fast", "balanced" or "best": choose the number of trees, their shapes and the loss's weight by the
                data; see :func:`xmc_tf.params.params_of_effort` (default: as ``params`` say: one tree).
            keep_training_data: keep features and labels of the documents in the model, so that it can grow by
                :meth:`with_documents`. They take about 8 bytes for each different word or n-gram of a document.
            **columns: ``text``: name of a DataFrame's column of texts, or several names; ``label_separator``: text
                between the labels of a document (default: guessed). The model remembers them.

        Raises:
            InputError: the inputs do not fit together, or a label is not among ``names``.
        """
        from xmc_tf.models.growing.training_data import TrainingData
        from xmc_tf.models.linear.training import (
            RankerData,
            fit_tfidf,
            label_trees,
            learn_evidence,
            other_params,
            preferred_names,
            uses_label_names,
        )

        read = read_documents(texts, labels, columns, training=True, labelled=True)
        Y, lines = label_matrix(read.labelled(), names)
        check_pair(read.documents, Y, "texts", "labels")
        params = params_of_effort(params or XRLinearParams(), effort, *Y.shape)
        names = None if lines is None else preferred_names(lines)
        tfidf: Tfidf | None = None
        if read.texts is not None:
            check_training_input(Y=Y, texts=read.texts, names=names)
            tfidf, X = fit_tfidf(read.texts, params.tfidf, threads)
            params = dataclasses.replace(params, tfidf=tfidf.params)  # with the language that was found
        else:
            X = read.documents
            check_training_input(Y=Y, X=X, names=names)
        data = RankerData(X, Y, label_trees(tree, X, Y, params.trees, threads), names)
        kept = TrainingData.of(X, Y, params.ranker) if keep_training_data else None
        evidence = None
        if uses_label_names(label_names, lines, tfidf is not None, params.ranker):
            assert lines is not None
            assert read.texts is not None
            evidence = learn_evidence(lines, read.texts, data, params, threads=threads, seed=seed)
        model = cls.trained(
            data, params, tfidf=tfidf, recorded=other_params(params, tfidf is not None), threads=threads, seed=seed
        )
        model.evidence = evidence
        model.own_training = kept
        model.metadata = model.metadata.with_columns(read.columns)
        return model

    @classmethod
    def trained(
        cls,
        data: "RankerData",
        params: XRLinearParams,
        *,
        tfidf: "Tfidf | None" = None,
        recorded: Mapping[str, Any],
        overrides: PredictionOverrides | None = None,
        threads: int = -1,
        seed: int = 0,
    ) -> Self:
        """Train the rankers of given trees on features.

        Args:
            data: the training data.
            params: options of the rankers; those of features and tree have been applied already.
            tfidf: the vectorizer that made the features, or None.
            recorded: parameters of the other parts, for the model metadata.
            overrides: options that override ``params.prediction``.
            threads: number of threads; -1: one per core.
            seed: random seed.
        """
        from xmc_tf.models.linear.training import linear_metadata, predicted_trees, train_all_trees

        rankers, pred_params = train_all_trees(data, params, overrides, threads=threads, seed=seed)
        trees, names = predicted_trees(data.trees, data.names, params.ranker)
        metadata = linear_metadata(data.X, rankers, params.ranker, pred_params, recorded, seed)
        return cls(rankers_of(rankers), trees[0], names, metadata, own_tfidf=tfidf, more_trees=trees[1:])

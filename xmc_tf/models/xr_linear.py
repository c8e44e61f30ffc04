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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.typing_names import Self, Unpack
from xmc_tf.data import Features, Texts, as_features, check_training_input
from xmc_tf.fusion import POOL, Evidence, bounded_post_processor, check_scores, chosen_threshold
from xmc_tf.linear.ensemble import Rankers, rankers_of, trees_of
from xmc_tf.linear.modes import whole_chain
from xmc_tf.linear.sub_models import checked_labels
from xmc_tf.linear.xlinear import XLinear
from xmc_tf.metrics import Measures, evaluate
from xmc_tf.metrics.measures import check_ks
from xmc_tf.models.explaining.explanation import Explanation, LabelExplanation
from xmc_tf.models.explaining.name_evidence import name_evidence
from xmc_tf.models.explaining.tree_evidence import name_of, names_of_features, tree_evidence
from xmc_tf.models.folder import ENSEMBLE, check_parts, further_trees, load_tfidf, nr_dense, read_metadata, read_names
from xmc_tf.models.frames import FrameColumns, FrameLike, documents_of
from xmc_tf.models.growing.documents import check_documents, further_labels, training_of, with_documents
from xmc_tf.models.growing.labels import without_labels
from xmc_tf.models.growing.merging import with_merged_labels
from xmc_tf.models.growing.training_data import TrainingData
from xmc_tf.models.labels import Labels, label_matrix, true_labels
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.models.results import above, labels_of_rankers, named, over_all_labels
from xmc_tf.models.xr_linear_folder import write_model
from xmc_tf.models.xr_linear_training import (
    RankerData,
    fit_tfidf,
    label_trees,
    learn_evidence,
    linear_metadata,
    other_params,
    predicted_trees,
    preferred_names,
    train_all_trees,
    uses_label_names,
)
from xmc_tf.params import PredictionOverrides, RankerParams, XRLinearParams, params_of_effort
from xmc_tf.tree import LabelTree, load_chain

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf
    from xmc_tf.serving.export import Exported, ExportSettings, ModelParts

FeaturesLike: TypeAlias = Features | spmatrix | np.ndarray


@dataclass(eq=False)
class XRLinear:
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

    ranker: Rankers
    tree: LabelTree
    names: list[str] | None = None
    metadata: ModelMetadata = field(default_factory=ModelMetadata)
    folder: Path | None = None
    own_tfidf: "Tfidf | None" = None
    evidence: Evidence | None = None
    more_trees: Sequence[LabelTree] = ()
    own_training: TrainingData | None = None

    def __repr__(self) -> str:
        of = f" of {self.folder}" if self.folder else ""
        reads = "text" if self.reads_text else "features"
        size = f"{self.ranker.depth} levels" if not self.more_trees else f"{len(self.more_trees) + 1} trees"
        return f"XRLinear({self.nr_labels:,} labels, {size}, reads {reads}{of})"

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the whole model with its vectorizer, so that its folder is not needed."""
        state = {name: value for name, value in vars(self).items() if name != "tfidf"}
        return state | {"own_tfidf": self.tfidf if self.reads_text else None}

    @property
    def nr_labels(self) -> int:
        """Number of labels, including those that were added after the training."""
        return self.ranker.nr_labels if self.evidence is None else self.evidence.names.nr_labels

    @property
    def reads_text(self) -> bool:
        """Whether the model contains a vectorizer and can read texts."""
        return self.own_tfidf is not None or (self.folder is not None and (self.folder / "features").is_dir())

    @cached_property
    def tfidf(self) -> "Tfidf":
        """The vectorizer. It is loaded on first use, because it loads TensorFlow."""
        if self.own_tfidf is not None:
            return self.own_tfidf
        return load_tfidf(self.folder / "features" if self.folder else None, self.metadata)

    @property
    def training_data(self) -> TrainingData | None:
        """Features and labels of the training documents, if the model keeps them; read again with every use."""
        if self.own_training is not None:
            return self.own_training
        return None if self.folder is None else TrainingData.load(self.folder)

    def features(self, texts: Texts, threads: int = -1, quiet: bool = False) -> Features:
        """Return the TF-IDF features of texts.

        Args:
            texts: documents, one text each.
            threads: number of threads; -1: one per core.
            quiet: whether to hide progress.
        """
        return as_features(self.tfidf.transform(texts, threads=threads, quiet=quiet))

    def set_output_constraint(self, labels: Iterable[int] | None) -> None:
        """Restrict predictions to some labels, without changing the model's folder.

        Args:
            labels: numbers of the labels that may be predicted; None for all.
        """
        chosen = None if labels is None else checked_labels(labels, self.nr_labels)
        self.ranker.set_output_constraint(labels_of_rankers(chosen, self.ranker.nr_labels))
        if self.evidence is not None:
            self.evidence.allowed = chosen

    def predict(
        self,
        texts: Texts | FeaturesLike,
        *,
        beam_size: int | None = None,
        only_topk: int | None = None,
        post_processor: str | None = None,
        scores: str | None = None,
        threshold: float | None = None,
        min_precision: float | None = None,
        X: FeaturesLike | None = None,
        threads: int = -1,
        quiet: bool = False,
    ) -> csr_matrix:
        """Return the scores of the best labels of texts or features.

        Args:
            texts: texts, for a model that was trained on texts; else features, documents × features.
            beam_size: number of nodes kept at each level above the labels; larger is slower and more exact. None, here
                and below: the model's default.
            only_topk: number of labels per document; with a threshold, the maximum number.
            post_processor: function applied to the scores of each level; only for scores of rankers.
            scores: "probability", calibrated from rankers and label names; or "ranker", as PECOS computes them. None:
                probabilities if the model was trained with label names.
            threshold: labels with a lower score are left out; None: none.
            min_precision: leave out labels, so that at least this share of the others is right, on held-out documents.
            X: features of the texts, if they are already computed by the model's vectorizer.
            threads: number of threads; -1: one per core.
            quiet: whether to hide progress.

        Returns:
            (documents × labels) scores, descending within a row.
        """
        scores = check_scores(scores, self.evidence, post_processor)
        probable = scores == "probability"
        threshold = chosen_threshold(self.evidence if probable else None, threshold, min_precision)
        if X is None:
            X = self.features(texts, threads, quiet) if _are_texts(texts) else texts
        topk = self.only_topk if only_topk is None else only_topk
        if topk < 1:
            raise InputError("beam size and top k must be at least 1", received=str(topk))
        found = self.ranker.predict(
            as_features(X),
            beam_size=beam_size,
            only_topk=max(topk, POOL) if probable else only_topk,
            post_processor=bounded_post_processor(self.post_processor) if probable else post_processor,
            threads=threads,
        )
        if not probable:
            allowed = None if self.evidence is None else self.evidence.allowed
            found = over_all_labels(found, self.nr_labels, allowed)
            return found if threshold is None else above(found, threshold)
        assert self.evidence is not None
        known = texts if _are_texts(texts) else None
        return self.evidence.combine(found, known, topk, threshold or 0.0, threads)

    def best(
        self,
        texts: Texts | FeaturesLike,
        k: int = 5,
        *,
        beam_size: int | None = None,
        post_processor: str | None = None,
        scores: str | None = None,
        threshold: float | None = None,
        min_precision: float | None = None,
        threads: int = -1,
    ) -> list[list[tuple[str, float]]]:
        """Return the names and scores of the k best labels of each document, best first.

        A label without a name goes by its number.

        Args:
            texts: documents: texts, for a model that was trained on texts; else features.
            k: number of labels per document; with a threshold, the maximum number.
            beam_size: number of nodes kept at each level above the labels; larger is slower and more exact. None: the
                model's default.
            post_processor: function applied to the scores of each level; None: the model's default.
            scores: "probability" or "ranker"; see :meth:`predict`.
            threshold: labels with a lower score are left out; None: none.
            min_precision: leave out labels, so that at least this share of the others is right, on held-out documents.
            threads: number of threads; -1: one per core.
        """
        predicted = self.predict(
            texts, beam_size=beam_size, only_topk=k, post_processor=post_processor, scores=scores,
            threshold=threshold, min_precision=min_precision, threads=threads,
        )  # fmt: skip
        return list(named(predicted, self.names))

    @property
    def only_topk(self) -> int:
        """Number of labels per document that are predicted by default."""
        return self.ranker.only_topk

    @property
    def post_processor(self) -> str:
        """The post-processor of the rankers' scores."""
        return trees_of(self.ranker)[0].levels[-1].pred_params.post_processor

    def explain(self, text: str | FeaturesLike, k: int = 5, *, beam_size: int | None = None) -> Explanation:
        """Explain the best labels of a text: the words and the path through the tree that led to them.

        Example:
            >>> print(model.explain("gradient of a sparse matrix", k=1))

        Args:
            text: the document: a text, or the features of one document.
            k: number of labels.
            beam_size: number of nodes kept at each level above the labels. None: the model's default.
        """
        X = self.features([text], threads=1) if isinstance(text, str) else as_features(text)
        if X.nr_rows != 1:
            raise InputError("one document is explained at a time", expected="1 row", received=f"{X.nr_rows:,} rows")
        predicted = self.predict([text] if isinstance(text, str) else X, only_topk=k, beam_size=beam_size, threads=1)
        feature_name = names_of_features(self.tfidf.names if self.reads_text else None)
        matches = self.evidence.names.evidence([text], 1) if self.evidence and isinstance(text, str) else None
        return Explanation(tuple(
            LabelExplanation(
                label, name_of(label, self.names), score,
                (*tree_evidence(self.ranker, X, label, feature_name, self.names), *name_evidence(matches, label)),
                "probability from rankers and label names" if self.evidence else "",
            ) for label, score in zip(predicted.indices.tolist(), predicted.data.tolist(), strict=True)
        ))  # fmt: skip

    def evaluate(
        self,
        texts: Texts | FeaturesLike | FrameLike,
        labels: Labels,
        *,
        ks: Sequence[int] = (1, 3, 5, 10),
        **columns: Unpack[FrameColumns],
    ) -> Measures:
        """Measure the model's predictions of documents whose labels are known.

        Example:
            >>> print(model.evaluate(TextFile("X.tst.txt"), load_matrix("Y.tst.npz")))

        Args:
            texts: texts or features, as :meth:`predict` takes them, or a DataFrame.
            labels: labels, as :meth:`train` takes them.
            ks: cut-offs: the numbers of best labels that are measured.
            **columns: of a DataFrame, as for :meth:`train`.
        """
        texts, labels = documents_of(texts, labels, columns)
        truth = true_labels(labels, texts, self.nr_labels, self.names)
        ks = check_ks(ks)
        return evaluate(truth, self.predict(texts, only_topk=ks[-1]), ks)

    def with_documents(
        self,
        texts: Texts | FeaturesLike | FrameLike,
        labels: Labels,
        *,
        new_labels: bool | Sequence[str] = False,
        exact: bool = False,
        threads: int = -1,
        **columns: Unpack[FrameColumns],
    ) -> "XRLinear":
        """Return the model with further documents: only the clusters of their labels change.

        Vocabulary and word weights, label tree and calibration stay as they are. The documents are kept, so that the
        result can grow again.

        Example:
            >>> texts, labels = ["soup with fresh herbs", "herbs for a garden"], [["cooking"], ["gardening"]]
            >>> model = XRLinear.train(texts, labels, keep_training_data=True)
            >>> grown = model.with_documents(["herbs in spring"], [["seasons"]], new_labels=True)

        Args:
            texts: the documents, as :meth:`train` takes them.
            labels: their labels: names, or a sparse matrix of documents × labels, or the name of a DataFrame's column.
            new_labels: whether there may be labels that the model does not have, which are then added; or their names,
                in the order of their numbers, with alternative names after tabs.
            exact: solve these clusters again on all their documents, as a training with the same tree does. By default
                their weights are moved to the new documents, which takes as long as these alone take.
            threads: number of threads; -1: one per core. The result does not depend on it.
            **columns: of a DataFrame, as for :meth:`train`.

        Raises:
            InputError: the model has not kept its training data, or a label is unknown.
        """
        texts, labels = documents_of(texts, labels, columns)
        training = training_of(self)
        Y, lines = further_labels(self, labels, new_labels)
        check_documents(texts, Y)
        X = self.features(texts, threads) if _are_texts(texts) else as_features(texts)
        return with_documents(self, training, X, Y, lines, exact=exact, threads=threads)

    def without_labels(self, labels: Iterable[str | int]) -> "XRLinear":
        """Return the model without some labels. Nothing is trained; the labels after them get lower numbers.

        Example:
            >>> texts, labels = ["soup with fresh herbs", "herbs for a garden"], [["cooking"], ["gardening"]]
            >>> XRLinear.train(texts, labels).without_labels(["gardening"]).names
            ['cooking']

        Args:
            labels: names or numbers of the labels to remove.

        Raises:
            InputError: a label does not exist, or none would remain.
        """
        return without_labels(self, labels)

    def with_merged_labels(self, groups: Iterable[Iterable[str | int]], *, threads: int = -1) -> "XRLinear":
        """Return the model with some labels merged: documents that have one of a group have the merged label.

        Only the clusters that change are solved again. Where names of labels are evidence, the names of merged labels
        are found as alternative names of the one that stays.

        Example:
            >>> texts, labels = ["soup with herbs", "herbs for a garden"], [["cooking"], ["gardening"]]
            >>> model = XRLinear.train(texts, labels, keep_training_data=True)
            >>> model.with_merged_labels([["cooking", "gardening"]]).names
            ['cooking']

        Args:
            groups: names or numbers of the labels to merge, in each group first the one that stays.
            threads: number of threads; -1: one per core. The result does not depend on it.

        Raises:
            InputError: the model has not kept its training data, or a label is unknown or occurs twice.
        """
        return with_merged_labels(self, training_of(self), groups, threads)

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
        folder = Path(folder)
        if not (folder / "params.json").exists() and (folder / "param.json").exists():
            ranker = XLinear.load(folder)
            clusters = [level.clusters for level in ranker.levels]
            return cls(ranker, LabelTree.from_chain(whole_chain(clusters, ranker.nr_labels, RankerParams())))
        metadata = read_metadata(folder)
        if metadata.model == "XTransformer":
            raise InputError(
                f"{folder} is an XR-Transformer model",
                expected="a linear model, as xmc_tf.linear.train writes it",
                fix="use python -m xmc_tf.predict (in Python: XTransformer.load); its linear rankers alone are in "
                f"{folder / 'ranker'}",
            )
        rankers, trees = [], []
        for place in [folder, *further_trees(folder / ENSEMBLE, metadata)]:
            ranker = XLinear.load(place / "ranker", nr_dense=nr_dense(metadata, folder))
            tree = load_chain(place / "tree")
            found = (
                ("ranker", "nr_labels", ranker.nr_labels),
                ("ranker", "nr_features", ranker.nr_features),
                ("tree", "nr_labels", tree.nr_labels),
            )
            check_parts(place, metadata, found)
            rankers.append(ranker)
            trees.append(tree)
        evidence = Evidence.load(folder)
        nr_labels = rankers[0].nr_labels if evidence is None else evidence.names.nr_labels
        names = read_names(folder, nr_labels)
        return cls(rankers_of(rankers), trees[0], names, metadata, folder, evidence=evidence, more_trees=trees[1:])

    @classmethod
    def train(
        cls,
        texts: Texts | FeaturesLike | FrameLike,
        labels: Labels,
        *,
        names: Sequence[str] | None = None,
        tree: LabelTree | FeaturesLike | None = None,
        params: XRLinearParams | None = None,
        label_names: bool | None = None,
        threads: int = -1,
        seed: int = 0,
        effort: str | None = None,
        keep_training_data: bool = False,
        **columns: Unpack[FrameColumns],
    ) -> Self:
        """Train a model.

        Example:
            >>> model = XRLinear.train(["soup with fresh herbs", "herbs for a garden"], [["cooking"], ["gardening"]])
            >>> model.save("model")
            >>> frame = {"text": ["soup with fresh herbs", "herbs for a garden"], "topic": ["cooking", "gardening"]}
            >>> model = XRLinear.train(frame, text="text", labels="topic")

        Args:
            texts: one text per document; or features, documents × features, for a model that reads features; or a
                DataFrame of pandas, Polars or PyArrow.
            labels: a sparse matrix of documents × labels, or the label names of each document, or the name of the
                DataFrame's column of labels.
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
            **columns: of a DataFrame: ``text``, name of the column of texts, or several names; ``label_separator``,
                text between the labels of a cell (default: guessed).

        Raises:
            InputError: the inputs do not fit together, or a label is not among ``names``.
        """
        texts, labels = documents_of(texts, labels, columns)
        Y, lines = label_matrix(labels, names)
        params = params_of_effort(params or XRLinearParams(), effort, *Y.shape)
        names = None if lines is None else preferred_names(lines)
        tfidf: Tfidf | None = None
        if _are_texts(texts):
            check_training_input(Y=Y, texts=texts, names=names)
            tfidf, X = fit_tfidf(texts, params.tfidf, threads)
        else:
            X = as_features(texts)
            check_training_input(Y=Y, X=X, names=names)
        data = RankerData(X, Y, label_trees(tree, X, Y, params.trees, threads), names)
        kept = TrainingData.of(X, Y, params.ranker) if keep_training_data else None
        evidence = None
        if uses_label_names(label_names, lines, tfidf is not None, params.ranker):
            assert lines is not None
            assert _are_texts(texts)
            evidence = learn_evidence(lines, texts, data, params, threads=threads, seed=seed)
        model = cls.trained(
            data, params, tfidf=tfidf, recorded=other_params(params, tfidf is not None), threads=threads, seed=seed
        )
        model.evidence = evidence
        model.own_training = kept
        return model

    @classmethod
    def trained(
        cls,
        data: RankerData,
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
        rankers, pred_params = train_all_trees(data, params, overrides, threads=threads, seed=seed)
        trees, names = predicted_trees(data.trees, data.names, params.ranker)
        metadata = linear_metadata(data.X, rankers, params.ranker, pred_params, recorded, seed)
        return cls(rankers_of(rankers), trees[0], names, metadata, own_tfidf=tfidf, more_trees=trees[1:])


def _are_texts(documents: object) -> TypeGuard[Texts]:
    """Return whether documents are texts, not features; an array with one dimension holds texts."""
    return not isinstance(documents, Features) and len(getattr(documents, "shape", ())) != 2

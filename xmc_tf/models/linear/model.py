"""A loaded linear model: its parts and its predictions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, Texts, as_features
from xmc_tf.fusion import POOL, Evidence, bounded_post_processor, check_scores, chosen_threshold
from xmc_tf.linear.ensemble import Rankers, trees_of
from xmc_tf.linear.sub_models import checked_labels
from xmc_tf.models.documents import DocumentsLike, FeaturesLike, FrameColumns, ReadDocuments, read_documents
from xmc_tf.models.folder import load_tfidf
from xmc_tf.models.growing.training_data import TrainingData
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.models.results import above, labels_of_rankers, named, over_all_labels
from xmc_tf.tree import LabelTree

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf


@dataclass(eq=False)
class LinearModel:
    """The parts of a linear model, and what it predicts by them.

    :class:`~xmc_tf.XRLinear`, which users hold, describes the arguments and adds training, growing and files. What
    prediction does not need is not imported here.
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
        return f"{type(self).__name__}({self.nr_labels:,} labels, {size}, reads {reads}{of})"

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
        texts: DocumentsLike,
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
        **columns: Unpack[FrameColumns],
    ) -> csr_matrix:
        """Return the scores of the best labels of texts or features.

        Args:
            texts: texts, for a model that was trained on texts; else features, documents × features. A single text is
                one document; of a DataFrame, the columns that the model was trained on are read.
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
            **columns: of a DataFrame: ``text``, the column of texts, or several (default: those of the training).

        Returns:
            (documents × labels) scores, descending within a row.
        """
        scores = check_scores(scores, self.evidence, post_processor)
        probable = scores == "probability"
        threshold = chosen_threshold(self.evidence if probable else None, threshold, min_precision)
        read = self._read(texts, columns=columns)
        if X is None:
            X = read.documents if read.texts is None else self.features(read.texts, threads, quiet)
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
        return self.evidence.combine(found, read.texts, topk, threshold or 0.0, threads)

    def best(
        self,
        texts: DocumentsLike,
        k: int = 5,
        *,
        beam_size: int | None = None,
        post_processor: str | None = None,
        scores: str | None = None,
        threshold: float | None = None,
        min_precision: float | None = None,
        threads: int = -1,
        **columns: Unpack[FrameColumns],
    ) -> list[list[tuple[str, float]]]:
        """Return the names and scores of the k best labels of each document, best first.

        A label without a name goes by its number.

        Args:
            texts: documents, as :meth:`predict` takes them.
            k: number of labels per document; with a threshold, the maximum number.
            beam_size: number of nodes kept at each level above the labels; larger is slower and more exact. None: the
                model's default.
            post_processor: function applied to the scores of each level; None: the model's default.
            scores: "probability" or "ranker"; see :meth:`predict`.
            threshold: labels with a lower score are left out; None: none.
            min_precision: leave out labels, so that at least this share of the others is right, on held-out documents.
            threads: number of threads; -1: one per core.
            **columns: of a DataFrame, as for :meth:`predict`.
        """
        predicted = self.predict(
            texts, beam_size=beam_size, only_topk=k, post_processor=post_processor, scores=scores,
            threshold=threshold, min_precision=min_precision, threads=threads, **columns,
        )  # fmt: skip
        return list(named(predicted, self.names))

    def _read(
        self, documents: Any, labels: Any = None, columns: FrameColumns | None = None, *, labelled: bool = False
    ) -> ReadDocuments:
        """Return documents and labels of any form; see :func:`xmc_tf.models.documents.read_documents`."""
        return read_documents(documents, labels, columns, trained=self.metadata.columns, labelled=labelled)

    @property
    def only_topk(self) -> int:
        """Number of labels per document that are predicted by default."""
        return self.ranker.only_topk

    @property
    def post_processor(self) -> str:
        """The post-processor of the rankers' scores."""
        return trees_of(self.ranker)[0].levels[-1].pred_params.post_processor

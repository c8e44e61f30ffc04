from collections import defaultdict
from itertools import pairwise
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from xmc_tf.common.numbers import LARGEST_INT32
from xmc_tf.data import check_pair
from xmc_tf.models.documents import FrameColumns, ReadDocuments, read_documents
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import (
    HierarchicalKMeansParams,
    LinearLevelParams,
    MatcherParams,
    RankerParams,
    TfidfParams,
)
from xmc_tf.sklearn.targets import Targets, check_targets, read_targets, true_matrix
from xmc_tf.sklearn.training import (
    BLOCKS,
    Model,
    check_options,
    checked_documents,
    nested,
    pack,
    replaced,
    train,
    unpack,
)
from xmc_tf.tables.columns import TrainedColumns
from xmc_tf.tables.label_forms import read_labels


class XMCClassifier(ClassifierMixin, BaseEstimator):
    """A multi-label classifier of texts or features, for up to millions of labels.

    ``fit`` accepts labels as lists of names (strings or integers), strings of names with a separator, a sparse or dense
    indicator matrix, or one label per document. ``predict`` returns the same form, except that it returns lists for
    strings with a separator. For lists of names, scikit-learn's ``cross_val_score`` and ``GridSearchCV`` do not accept
    an integer ``cv``; pass ``cv=KFold(3)`` instead.

    ``set_params`` and ``GridSearchCV`` can set each option of the blocks ``tfidf``, ``tree``, ``ranker`` and
    ``matcher``, under names such as ``tfidf__ngram_max`` and ``ranker__Cp``.

    Example:
        >>> from xmc_tf.sklearn import XMCClassifier
        >>> texts = ["a fast red car", "fast cars and red cars", "a green garden", "the garden is green"]
        >>> labels = [["vehicle", "red"], ["vehicle", "red"], ["plant"], ["plant"]]
        >>> classifier = XMCClassifier(max_labels=1).fit(texts, labels)
        >>> classifier.predict(["my green garden"])
        [['plant']]
        >>> [name for name, score in classifier.top_k(["a red car"], k=2)[0]]
        ['red', 'vehicle']

    Args:
        model: "linear" trains an :class:`~xmc_tf.XRLinear` on features or on TF-IDF of texts; "transformer" fine-tunes
            an encoder and trains an :class:`~xmc_tf.XTransformer`, on texts only.
        encoder: pretrained encoder of the transformer: a folder, or a name on the Hugging Face hub (default: the
            encoder in ``matcher``).
        fine_tune: whether to fine-tune the encoder. False is faster and trains only the linear rankers.
        max_tokens: maximum number of tokens per document that the encoder reads.
        tfidf: options of TF-IDF, for texts.
        tree: options of the label tree; ``random_state`` replaces its seed.
        ranker: training options of the linear rankers: the options of one level, used for all levels, or the options of
            the whole tree.
        matcher: options of fine-tuning.
        max_labels: maximum number of labels that ``predict`` returns per document (default: the rounded average number
            of labels per training document).
        threshold: minimum score, from 0 to 1, of the labels that ``predict`` returns. It has no effect if ``fit``
            receives one label per document (not lists).
        scored_labels: number of best labels per document that ``predict_proba`` and ``decision_function`` score; all
            other labels have a score of 0.
        beam_size: number of nodes kept at each level of the tree; larger values are slower and more exact.
        sparse_output: whether ``predict_proba`` and ``decision_function`` return sparse matrices. Most scikit-learn
            metrics that compare scores require False, which needs memory for a dense matrix of documents × labels.
        n_jobs: number of threads; -1 or None: one per core.
        random_state: random seed: an integer, a ``RandomState``, or None for a different seed in each training run.

    Attributes:
        classes_: the labels, in the order of the score columns: sorted names or integers; for an indicator matrix, the
            columns of a DataFrame or the column numbers.
        model_: the trained model, for ``model_.save(folder)`` and ``model_.export(folder)``.
        labels_per_document_: the average number of labels per training document.
        n_features_in_: number of features, if ``fit`` received features.
        feature_names_in_: names of the features, if ``fit`` received a DataFrame of features.
    """

    _targets: Targets
    _columns: TrainedColumns | None

    def __init__(
        self,
        model: str = "linear",
        *,
        encoder: str | None = None,
        fine_tune: bool = True,
        max_tokens: int = 128,
        tfidf: TfidfParams | None = None,
        tree: HierarchicalKMeansParams | None = None,
        ranker: LinearLevelParams | RankerParams | None = None,
        matcher: MatcherParams | None = None,
        max_labels: int | None = None,
        threshold: float = 0.0,
        scored_labels: int = 20,
        beam_size: int = 20,
        sparse_output: bool = True,
        n_jobs: int | None = -1,
        random_state: Any = 0,
    ) -> None:
        self.model = model
        self.encoder = encoder
        self.fine_tune = fine_tune
        self.max_tokens = max_tokens
        self.tfidf = tfidf
        self.tree = tree
        self.ranker = ranker
        self.matcher = matcher
        self.max_labels = max_labels
        self.threshold = threshold
        self.scored_labels = scored_labels
        self.beam_size = beam_size
        self.sparse_output = sparse_output
        self.n_jobs = n_jobs
        self.random_state = random_state

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; with ``deep``, also the options of the blocks, such as ``tfidf__ngram_max``.

        Args:
            deep: whether to include the options of the blocks.
        """
        params: dict[str, Any] = super().get_params(deep=False)
        return {**params, **nested(params)} if deep else params

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``tfidf__ngram_max=3`` changes one option of a block.

        Args:
            **params: new values by name.
        """
        changes: dict[str, dict[str, Any]] = defaultdict(dict)
        own = {}
        for name, value in params.items():
            block, _, option = name.partition("__")
            if option and block in BLOCKS:
                changes[block][option] = value
            else:
                own[name] = value
        super().set_params(**own)
        for block, values in changes.items():
            setattr(self, block, replaced(self.get_params(deep=False), block, values))
        return self

    def fit(self, X: Any, y: Any) -> Self:
        """Train the model.

        Args:
            X: texts, or a DataFrame with a text column, as in :meth:`XRLinear.train`; or features (a sparse or dense
                matrix, or a DataFrame of numbers).
            y: lists of names, an indicator matrix, one label per document, or the name of the DataFrame's label column.
        """
        params = self.get_params(deep=False)
        check_options(params)
        # Each document of scikit-learn's y has its class, also if that is called "none".
        columns: FrameColumns = {} if isinstance(y, str) else {"keep_na_labels": True}
        read = read_documents(X, check_targets(y), columns, training=True, name="X", labels_name="y")
        documents = checked_documents(self, X, read, fitting=True)
        targets, Y = read_targets(read.labelled())
        check_pair(documents, Y, "X", "y")
        state = check_random_state(self.random_state)  # raises an error for an invalid seed
        whole = isinstance(self.random_state, int | np.integer)
        seed = int(self.random_state if whole else state.randint(LARGEST_INT32))
        self.model_: Model = train(params, documents, Y, targets.names, self._threads, seed)
        self.labels_per_document_ = float(Y.nnz / Y.shape[0])
        self.classes_, self._targets, self._columns = targets.classes, targets, read.columns
        return self

    def predict(self, X: Any) -> Any:
        """Return the labels of documents, in the form of the training labels.

        If ``fit`` received one label per document (not lists), return the best label. Otherwise, return at most
        ``max_labels`` labels with a score of at least ``threshold`` (in lists, best first).

        Args:
            X: documents: texts or features, as in ``fit``.
        """
        check_is_fitted(self)
        if self._targets.single:
            count = self.scored_labels  # all that decision_function scores, so that both agree on equal scores
        else:
            count = self.max_labels or max(1, round(self.labels_per_document_))
        return self._targets.shown(self._scores(X, count), self.threshold)

    def predict_proba(self, X: Any) -> csr_matrix | np.ndarray:
        """Return the scores of the best labels, from 0 to 1, as a matrix of documents × labels.

        A linear model that was trained on at least 200 documents returns calibrated probabilities. Other scores are
        only suitable for ranking labels. If ``fit`` received one label per document (not lists), the scores in each row
        are scaled to a sum of 1.

        Args:
            X: documents: texts or features, as in ``fit``.
        """
        check_is_fitted(self)
        return self._in_shape(self._shares(X) if self._targets.single else self._scores(X, self.scored_labels))

    def decision_function(self, X: Any) -> csr_matrix | np.ndarray:
        """Return the model's scores of the best labels as a matrix of documents × labels.

        For binary classification (two labels; ``fit`` received one per document, not lists), the result follows
        scikit-learn's convention: one number per document, which is positive for the second label.

        Args:
            X: documents: texts or features, as in ``fit``.
        """
        check_is_fitted(self)
        if self._targets.single and len(self.classes_) == 2:
            first, second = self._shares(X).toarray().T
            return second - first
        return self._in_shape(self._scores(X, self.scored_labels))

    def top_k(self, X: Any, k: int = 5) -> list[list[tuple[Any, float]]]:
        """Return the names and scores of the k best labels of each document, best first.

        Args:
            X: documents: texts or features, as in ``fit``.
            k: number of labels per document.
        """
        check_is_fitted(self)
        scores, classes = self._scores(X, k), self.classes_.tolist()
        found = []
        for a, b in pairwise(scores.indptr):
            order = a + np.argsort(-scores.data[a:b], kind="stable")
            found.append([(classes[scores.indices[i]], float(scores.data[i])) for i in order])
        return found

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the quality of ``predict``: the mean F1 score per document, or the accuracy for single labels.

        The F1 score is ``f1_score(y, predict(X), average="samples", zero_division=1)``. The accuracy is returned if
        ``fit`` received one label per document (not lists), of the documents that have a label. scikit-learn's default
        for multi-label problems, subset accuracy, is not used: it counts a document only if all its labels are right,
        which is rare with many labels.

        Args:
            X: documents: texts or features, as in ``fit``.
            y: their true labels, in any form that ``fit`` accepts.
            sample_weight: weight of each document; None: equal weights.
        """
        check_is_fitted(self)
        read = self._read(X, check_targets(y))
        found = read_labels(self.predict(X if read.texts is None else read.texts), "", "y")
        check_pair(read.documents, read.labelled(), "X", "y")
        if self._targets.single and not read.labelled().is_matrix:
            labels = read.labelled().lists
            right = [own == best for own, best in zip(labels, found.lists, strict=True)]
            weights = np.array(list(map(bool, labels))) * (1 if sample_weight is None else np.asarray(sample_weight))
            return float(np.average(right, weights=weights))
        truth, sizes = true_matrix(read.labelled(), self._targets)
        predicted, _ = true_matrix(found, self._targets)
        hits = np.asarray(predicted.multiply(truth).sum(axis=1)).ravel()
        total = sizes + np.diff(predicted.indptr)
        f1 = np.where(total > 0, 2 * hits / np.maximum(total, 1), 1.0)
        return float(np.average(f1, weights=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        reads_features = self.model != "transformer"
        tags.input_tags.string = True
        tags.input_tags.two_d_array = tags.input_tags.sparse = reads_features
        tags.target_tags.one_d_labels = tags.target_tags.two_d_labels = True
        tags.classifier_tags.multi_label = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle. It includes all files of a transformer, whose folder is no longer needed."""
        state: dict[str, Any] = super().__getstate__()
        model = state.get("model_")
        return state if model is None or isinstance(model, XRLinear) else {**state, "model_": pack(model)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state.get("model_"), dict):
            state = {**state, "model_": unpack(state["model_"])}
        super().__setstate__(state)

    @property
    def _threads(self) -> int:
        return -1 if self.n_jobs is None else self.n_jobs

    def _read(self, X: Any, y: Any = None) -> ReadDocuments:
        columns: FrameColumns = {"label_separator": self._targets.separator, "keep_na_labels": not isinstance(y, str)}
        return read_documents(X, y, columns, trained=self._columns, name="X", labels_name="y")

    def _scores(self, X: Any, count: int) -> csr_matrix:
        """Return a sparse matrix of the best labels' scores, with sorted indices."""
        documents: Any = checked_documents(self, X, self._read(X), fitting=False)
        scores = self.model_.predict(
            documents, beam_size=self.beam_size, only_topk=min(count, len(self.classes_)), threads=self._threads
        )
        scores.sort_indices()
        return scores

    def _shares(self, X: Any) -> csr_matrix:
        """Return the scores, divided by the sum of their row."""
        scores = self._scores(X, self.scored_labels).astype(np.float64)
        sums = np.asarray(scores.sum(axis=1)).ravel()
        scores.data /= np.repeat(np.where(sums > 0, sums, 1), np.diff(scores.indptr))
        return scores

    def _in_shape(self, scores: csr_matrix) -> csr_matrix | np.ndarray:
        return scores if self.sparse_output else scores.toarray()

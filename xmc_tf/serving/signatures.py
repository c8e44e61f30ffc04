from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from xmc_tf.common.activity import doing
from xmc_tf.features.graph import TfidfGraph
from xmc_tf.serving.answers import Answers
from xmc_tf.serving.dense import DenseFeatures
from xmc_tf.serving.evidence import FusedSearch
from xmc_tf.serving.label_head import BlendedSearch
from xmc_tf.serving.query import Dense, Query, TextWindows
from xmc_tf.serving.search import Beam, MeanSearch, TreeSearch

_TEXT = tf.TensorSpec([None], tf.string)


class Signatures:
    """The signatures of a model, as traced functions.

    serving_default   text → labels, scores, names; the same as ``features`` if the model cannot read texts
    top_k             text and a number of labels for each text → the same
    features          padded feature ids and weights, and the inputs of the dense features → the same
    paths             text → the same, with the path through the tree to each label
    embed             text → the dense features
    about             text → the same numbers for each: the number of labels, the default k, and the maximum k
    """

    def __init__(
        self,
        tfidf: TfidfGraph | None,
        dense: DenseFeatures | None,
        search: TreeSearch | MeanSearch | BlendedSearch,
        answers: Answers,
        nr_sparse: int,
        nr_labels: int,
        k: int,
        most: int,
        fused: FusedSearch | None = None,
    ) -> None:
        self._tfidf = tfidf
        self._dense = dense
        # One graph shared by the signatures, because a server holds several copies of each graph of a model.
        self._search = tf.function(search.__call__, autograph=False)
        self._fused = None if fused is None else tf.function(fused.__call__, autograph=False)
        self._pool = 0 if fused is None else fused.pool
        self._answers = answers
        self._nr_sparse = nr_sparse
        self._numbers = {"nr_labels": nr_labels, "k": k, "most": most}
        self._k = k
        self._most = most

    @doing("building the graph")
    def functions(self) -> dict[str, Any]:
        """Return the traced functions by the names of the signatures."""
        reads_text = (self._tfidf is not None or not self._nr_sparse) and (
            self._dense is None or self._dense.reads_text
        )
        found = {"features": _traced(self._of_features, self._feature_inputs())}
        if not reads_text:
            return {"serving_default": found["features"], **found}
        found |= {
            "serving_default": _traced(self._of_text, {"text": _TEXT}),
            "top_k": _traced(self._top_k, {"text": _TEXT, "k": tf.TensorSpec([None], tf.int32)}),
            "paths": _traced(self._paths, {"text": _TEXT}),
        }
        found["about"] = _traced(self._about, {"text": _TEXT})
        if self._dense is not None:
            found["embed"] = _traced(self._embed, {"text": _TEXT})
        return found

    def _of_text(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return self._answers.labels(self._found(inputs["text"], self._k)[-1], self._k)

    def _top_k(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        text, k = inputs["text"], inputs["k"]
        with tf.control_dependencies(
            [
                _require(tf.equal(tf.size(k), tf.size(text)), "k must have one number for each text"),
                _require(tf.reduce_all(k >= 1), "k must be at least 1"),
                _require(
                    tf.reduce_all(k <= self._most),
                    f"k may be at most {self._most} in this model: "
                    "it was exported with this beam; export it again with a larger -b for more",
                ),
            ]
        ):
            k = tf.identity(k)
        return self._answers.first(self._found(text, self._most)[-1], self._most, k)

    def _of_features(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        inputs = dict(inputs)
        dense, windows = self._scaled(None if self._dense is None else self._dense.of_inputs(inputs))
        if self._nr_sparse:
            ids, weights = inputs["feature_ids"], inputs["feature_weights"]
            with tf.control_dependencies(
                [
                    _require(
                        tf.reduce_all((ids >= 0) & (ids < self._nr_sparse)),
                        f"feature_ids must lie between 0 and {self._nr_sparse - 1}",
                    ),
                    _require(
                        tf.reduce_all(tf.equal(tf.shape(ids), tf.shape(weights))),
                        "feature_ids and feature_weights must have the same shape",
                    ),
                ]
            ):
                query = Query.from_padded(tf.identity(ids), weights, dense)
        else:
            assert dense is not None
            query = Query.from_padded(
                tf.zeros([tf.shape(dense)[0], 0], tf.int32), tf.zeros([tf.shape(dense)[0], 0]), dense
            )
        return self._answers.labels(self._fuse(None, query._replace(windows=windows), self._k)[-1], self._k)

    def _paths(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return self._answers.paths(self._found(inputs["text"], self._k), self._k)

    def _about(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        # As long as the input, like all outputs, so that a server can batch requests.
        return {
            name: tf.fill(tf.shape(inputs["text"]), tf.constant(number, tf.int64))
            for name, number in self._numbers.items()
        }

    def _embed(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        assert self._dense is not None
        return {"embedding": self._dense.of_text(inputs["text"]).documents}

    def _found(self, text: tf.Tensor, most: int) -> list[Beam]:
        """Return the beam of each level; the last are the labels, with the scores of the answer."""
        return self._fuse(text, self._query(text), most)

    def _fuse(self, text: tf.Tensor | None, query: Query, most: int) -> list[Beam]:
        if self._fused is None:
            return self._search(query, most)
        beams = self._search(query, max(most, self._pool))
        # The rankers' embeddings have another length.
        unit = None if query.dense is None or self._dense is None else query.dense / self._dense.length
        return [*beams[:-1], self._fused(text, beams[-1], most, unit)]

    def _query(self, text: tf.Tensor) -> Query:
        dense, windows = self._scaled(None if self._dense is None else self._dense.of_text(text))
        if self._tfidf is not None:
            row_splits, ids, weights = self._tfidf(text)
        else:
            row_splits = tf.zeros([tf.size(text, out_type=tf.int64) + 1], tf.int64)
            ids, weights = tf.zeros([0], tf.int32), tf.zeros([0])
        return Query.from_rows(row_splits, ids, weights, dense)._replace(windows=windows)

    def _scaled(self, dense: Dense | None) -> tuple[tf.Tensor | None, TextWindows | None]:
        """Return the dense features with the norm that the rankers expect, and the windows."""
        if dense is None or self._dense is None:
            return None, None
        return dense.documents * self._dense.length, dense.windows

    def _feature_inputs(self) -> dict[str, tf.TensorSpec]:
        specs = dict(self._dense.inputs) if self._dense is not None else {}
        if self._nr_sparse:
            specs["feature_ids"] = tf.TensorSpec([None, None], tf.int32)
            specs["feature_weights"] = tf.TensorSpec([None, None], tf.float32)
        return specs


def _traced(function: Callable[..., Any], specs: Mapping[str, tf.TensorSpec]) -> Any:
    """Return the function's graph, whose inputs have the names used in requests."""
    named = {name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in specs.items()}

    def call(inputs: Mapping[str, tf.Tensor]) -> Any:
        return function({name: _of_rank(inputs[name], spec.shape, name) for name, spec in named.items()})

    return tf.function(call, autograph=False).get_concrete_function(named)


def _of_rank(given: tf.Tensor, shape: tf.TensorShape, name: str) -> tf.Tensor:
    """Reject inputs with another number of dimensions, which servers accept and the ops would flatten."""
    # Behind this op the static shape is unknown; otherwise the check would be optimized away. The message contains the
    # name of the op.
    given = tf.raw_ops.PlaceholderWithDefault(input=given, shape=None, name=name)
    return tf.ensure_shape(given, shape)


def _require(condition: tf.Tensor, message: str) -> Any:
    """Abort the request with the message unless the condition holds."""
    return tf.raw_ops.Assert(condition=condition, data=[tf.constant(message)])

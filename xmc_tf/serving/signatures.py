from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from xmc_tf.common.activity import doing
from xmc_tf.features.graph import TfidfGraph
from xmc_tf.serving.fused_search import FusedSearch
from xmc_tf.serving.label_head import BlendedSearch
from xmc_tf.serving.query import Dense, DenseFeatures, Query, TextWindows, required
from xmc_tf.serving.search import Beam, MeanSearch, TreeSearch


class Signatures:
    """The signatures of a model, as traced functions.

    serving_default   text → labels, scores, names; identical to ``features`` if the model cannot read texts
    top_k             text, and the number of labels for each text → labels, scores, names
    features          padded feature ids and weights, and the inputs of the dense features → labels, scores, names
    paths             text → labels, scores, names, and the path through the tree to each label
    embed             text → the dense features
    about             text → the number of labels, the default k, and the maximum k, repeated for each text
    """

    def __init__(
        self,
        tfidf: TfidfGraph | None,
        dense: DenseFeatures | None,
        search: TreeSearch | MeanSearch | BlendedSearch,
        answers: "Answers",
        nr_sparse: int,
        nr_labels: int,
        k: int,
        most: int,  # maximum number of labels that a caller may request
        fused: FusedSearch | None = None,
    ) -> None:
        self._tfidf, self._dense, self._answers, self._nr_sparse = tfidf, dense, answers, nr_sparse
        # One graph shared by the signatures, because a server holds several copies of each graph of a model.
        self._search = tf.function(search.__call__, autograph=False)
        self._fused = None if fused is None else tf.function(fused.__call__, autograph=False)
        self._pool = 0 if fused is None else fused.pool
        self._k, self._most = k, most
        self._numbers = {"nr_labels": nr_labels, "k": k, "most": most}

    @doing("building the graph")
    def functions(self) -> dict[str, Any]:
        dense, answers, k = self._dense, self._answers, self._k
        features = {} if dense is None else dict(dense.inputs)
        if self._nr_sparse:
            features["feature_ids"] = tf.TensorSpec([None, None], tf.int32)
            features["feature_weights"] = tf.TensorSpec([None, None], tf.float32)
        found = {"features": _traced(self._of_features, features)}
        if (self._tfidf is None and self._nr_sparse) or not (dense is None or dense.reads_text):
            return {"serving_default": found["features"], **found}
        text = {"text": tf.TensorSpec([None], tf.string)}
        found |= {
            "serving_default": _traced(lambda given: answers.labels(self._found(given["text"], k)[-1], k), text),
            "top_k": _traced(self._top_k, {**text, "k": tf.TensorSpec([None], tf.int32)}),
            "paths": _traced(lambda given: answers.paths(self._found(given["text"], k), k), text),
            "about": _traced(self._about, text),
        }
        if dense is not None:
            found["embed"] = _traced(lambda given: {"embedding": dense.of_text(given["text"]).documents}, text)
        return found

    def _top_k(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        text, k = inputs["text"], inputs["k"]
        too_many = (
            f"k may be at most {self._most} in this model: "
            "it was exported with this beam; export it again with a larger -b for more"
        )
        with required(
            (tf.equal(tf.size(k), tf.size(text)), "k must have one number for each text"),
            (tf.reduce_all(k >= 1), "k must be at least 1"),
            (tf.reduce_all(k <= self._most), too_many),
        ):
            k = tf.identity(k)
        return self._answers.first(self._found(text, self._most)[-1], self._most, k)

    def _of_features(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        dense, windows = self._scaled(None if self._dense is None else self._dense.of_inputs(inputs))
        if self._nr_sparse:
            ids, weights = inputs["feature_ids"], inputs["feature_weights"]
            inside = tf.reduce_all((ids >= 0) & (ids < self._nr_sparse))
            same = tf.reduce_all(tf.equal(tf.shape(ids), tf.shape(weights)))
            with required(
                (inside, f"feature_ids must lie between 0 and {self._nr_sparse - 1}"),
                (same, "feature_ids and feature_weights must have the same shape"),
            ):
                query = Query.from_padded(tf.identity(ids), weights, dense)
        else:
            shape = [tf.shape(dense)[0], 0]
            query = Query.from_padded(tf.zeros(shape, tf.int32), tf.zeros(shape), dense)
        return self._answers.labels(self._fuse(None, query._replace(windows=windows), self._k)[-1], self._k)

    def _about(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        # As long as the input, like all outputs, so that a server can batch requests.
        shape = tf.shape(inputs["text"])
        return {name: tf.fill(shape, tf.constant(number, tf.int64)) for name, number in self._numbers.items()}

    def _found(self, text: tf.Tensor, most: int) -> list[Beam]:
        """Return the beam of each level; the last beam contains the labels with their final scores."""
        return self._fuse(text, self._query(text), most)

    def _fuse(self, text: tf.Tensor | None, query: Query, most: int) -> list[Beam]:
        if self._fused is None:
            return self._search(query, most)
        beams = self._search(query, max(most, self._pool))
        # The embeddings for the rankers have another norm.
        unit = None if query.dense is None or self._dense is None else query.dense / self._dense.length
        information = None if self._tfidf is None else self._tfidf.information(query.rows, query.features, query.count)
        return [*beams[:-1], self._fused(text, beams[-1], most, unit, information, self._answers.threshold is not None)]

    def _query(self, text: tf.Tensor) -> Query:
        dense, windows = self._scaled(None if self._dense is None else self._dense.of_text(text))
        if self._tfidf is not None:
            row_splits, ids, weights = self._tfidf(text)
        else:
            row_splits = tf.zeros([tf.size(text, out_type=tf.int64) + 1], tf.int64)
            ids, weights = tf.zeros([0], tf.int32), tf.zeros([0])
        return Query.from_rows(row_splits, ids, weights, dense)._replace(windows=windows)

    def _scaled(self, dense: Dense | None) -> tuple[tf.Tensor | None, TextWindows | None]:
        """Return the dense features, scaled to the norm that the rankers expect, and the windows."""
        if dense is None or self._dense is None:
            return None, None
        return dense.documents * self._dense.length, dense.windows


class Answers(NamedTuple):
    """The conversion of beams to outputs. Missing labels are -1, with score 0 and an empty name."""

    names: tf.Variable | None  # string [labels]; None: the labels' numbers
    parents: Sequence[tf.Variable]  # int32 [nodes] of each level
    examples: Sequence[tf.Variable]  # int32 [nodes, m] of each level but the last: labels below, padded with -1
    threshold: float | None  # labels with a lower score are left out

    def labels(self, beam: Beam, k: int) -> dict[str, tf.Tensor]:
        """Return the best ``k`` labels, always as ``k`` columns."""
        lacking = max(0, k - beam.nodes.shape[1])
        nodes = tf.pad(beam.nodes, [[0, 0], [0, lacking]], constant_values=-1)
        scores = tf.pad(beam.scores, [[0, 0], [0, lacking]])
        return self._filled(nodes, scores, nodes >= 0)

    def first(self, beam: Beam, k: int, counts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the best ``counts[i]`` labels (at most ``k``) of each document ``i``."""
        width = tf.reduce_max(tf.concat([counts, [0]], axis=0))
        out = self.labels(beam, k)
        labels, scores = out["labels"][:, :width], out["scores"][:, :width]
        return self._filled(labels, scores, (tf.range(width) < counts[:, None]) & (labels >= 0))

    def paths(self, beams: Sequence[Beam], k: int) -> dict[str, tf.Tensor]:
        """Return the best ``k`` labels, and the nodes above each label from the top, with scores and example labels."""
        out = self.labels(beams[-1], k)
        node = tf.cast(out["labels"], tf.int32)
        node = tf.where(node < tf.size(self.parents[-1]), node, -1)  # labels that were added later have no path
        nodes, scores, examples = list[tf.Tensor](), list[tf.Tensor](), list[tf.Tensor]()
        for level in reversed(range(len(beams) - 1)):
            node = tf.where(node >= 0, tf.gather(self.parents[level + 1], tf.maximum(node, 0)), -1)
            same = tf.equal(node[:, :, None], beams[level].nodes[:, None, :]) & (node >= 0)[:, :, None]
            nodes.insert(0, node)
            scores.insert(0, tf.reduce_sum(tf.where(same, beams[level].scores[:, None, :], 0.0), axis=2))
            some = tf.gather(self.examples[level], tf.maximum(node, 0))
            examples.insert(0, self._names_of(tf.where((node >= 0)[..., None], some, -1)))
        if nodes:
            found = [tf.stack(part, axis=2) for part in (nodes, scores, examples)]
        else:  # a tree of one level
            none = tf.zeros([tf.shape(node)[0], k, 0])
            found = [none, none, tf.as_string(none)[..., None]]
        return out | {"nodes": tf.cast(found[0], tf.int64), "node_scores": found[1], "node_examples": found[2]}

    def _filled(self, labels: tf.Tensor, scores: tf.Tensor, there: tf.Tensor) -> dict[str, tf.Tensor]:
        if self.threshold is not None:
            there &= scores >= self.threshold
        labels = tf.where(there, tf.cast(labels, tf.int64), -1)
        return {"labels": labels, "scores": tf.where(there, scores, 0.0), "names": self._names_of(labels)}

    def _names_of(self, labels: tf.Tensor) -> tf.Tensor:
        names = self.names
        named = tf.strings.as_string(labels) if names is None else tf.gather(names, tf.maximum(labels, 0))
        return tf.where(labels >= 0, named, "")


def _traced(function: Callable[..., Any], specs: Mapping[str, tf.TensorSpec]) -> Any:
    """Return the graph of a function; its inputs have the names used in requests."""
    named = {name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in specs.items()}

    def call(inputs: Mapping[str, tf.Tensor]) -> Any:
        given = {}
        for name, spec in named.items():
            # Reject another number of dimensions, which servers accept and the ops would flatten. Behind this op the
            # static shape is unknown; otherwise the check would be optimized away. The message contains its name.
            held = tf.raw_ops.PlaceholderWithDefault(input=inputs[name], shape=None, name=name)
            given[name] = tf.ensure_shape(held, spec.shape)
        return function(given)

    return tf.function(call, autograph=False).get_concrete_function(named)

"""Conversion of beams to the outputs of a signature: labels, scores, names, and paths through the tree."""

from collections.abc import Sequence

import tensorflow as tf

from xmc_tf.serving.search import Beam


class Answers:
    """The conversion of beams to outputs; missing labels are -1 with score 0 and an empty name."""

    def __init__(
        self,
        names: tf.Variable | None,
        parents: Sequence[tf.Variable],
        examples: Sequence[tf.Variable],
        threshold: float | None,
    ) -> None:
        self._names = names
        self._parents = parents
        self._examples = examples
        self._threshold = threshold

    def labels(self, beam: Beam, k: int) -> dict[str, tf.Tensor]:
        """Return the best ``k`` labels, always in ``k`` columns."""
        lacking = max(0, k - beam.nodes.shape[1])
        nodes = tf.pad(beam.nodes, [[0, 0], [0, lacking]], constant_values=-1)
        scores = tf.pad(beam.scores, [[0, 0], [0, lacking]])
        return self._filled(nodes, scores, nodes >= 0)

    def first(self, beam: Beam, k: int, counts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the first ``counts`` (int32 [n]) of each document's best ``k`` labels."""
        width = tf.reduce_max(tf.concat([counts, [0]], axis=0))
        out = self.labels(beam, k)
        labels, scores = out["labels"][:, :width], out["scores"][:, :width]
        return self._filled(labels, scores, (tf.range(width) < counts[:, None]) & (labels >= 0))

    def paths(self, beams: Sequence[Beam], k: int) -> dict[str, tf.Tensor]:
        """Return the best ``k`` labels, and the nodes above each from the top, with their scores and example labels."""
        out = self.labels(beams[-1], k)
        node = tf.cast(out["labels"], tf.int32)
        node = tf.where(node < tf.size(self._parents[-1]), node, -1)  # labels that were added later have no path
        nodes: list[tf.Tensor] = []
        scores: list[tf.Tensor] = []
        examples: list[tf.Tensor] = []
        for level in reversed(range(len(beams) - 1)):
            node = tf.where(node >= 0, tf.gather(self._parents[level + 1], tf.maximum(node, 0)), -1)
            same = tf.equal(node[:, :, None], beams[level].nodes[:, None, :]) & (node >= 0)[:, :, None]
            nodes.insert(0, node)
            scores.insert(0, tf.reduce_sum(tf.where(same, beams[level].scores[:, None, :], 0.0), axis=2))
            some = tf.gather(self._examples[level], tf.maximum(node, 0))
            examples.insert(0, self._names_of(tf.where((node >= 0)[..., None], some, -1)))
        if not nodes:  # a tree of one level
            none = tf.zeros([tf.shape(node)[0], k, 0])
            return out | {
                "nodes": tf.cast(none, tf.int64),
                "node_scores": none,
                "node_examples": tf.as_string(none)[..., None],
            }
        return out | {
            "nodes": tf.cast(tf.stack(nodes, axis=2), tf.int64),
            "node_scores": tf.stack(scores, axis=2),
            "node_examples": tf.stack(examples, axis=2),
        }

    def _filled(self, labels: tf.Tensor, scores: tf.Tensor, there: tf.Tensor) -> dict[str, tf.Tensor]:
        if self._threshold is not None:
            there &= scores >= self._threshold
        labels = tf.where(there, tf.cast(labels, tf.int64), -1)
        return {"labels": labels, "scores": tf.where(there, scores, 0.0), "names": self._names_of(labels)}

    def _names_of(self, labels: tf.Tensor) -> tf.Tensor:
        numbers = self._names is None
        names = tf.strings.as_string(labels) if numbers else tf.gather(self._names, tf.maximum(labels, 0))
        return tf.where(labels >= 0, names, "")

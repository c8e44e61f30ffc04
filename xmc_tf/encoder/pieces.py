"""The most likely segmentation of words into the pieces of a vocabulary, in the graph.

Scores are summed in the order and precision of the tokenizers library, so that ties are broken equally (a run of equal
characters has many). SentencePiece itself sums in lower precision and breaks ties differently.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from xmc_tf.encoder.code_points import SPECIAL, Runs, places_of, positions_in_rows, starts_of
from xmc_tf.encoder.special_tokens import cannot_run_in_graph, is_special

LONGEST_WORD = 20_000
_SHIFT = 1 << 22
_UNKNOWN_PENALTY = 10.0


class LikeliestPieces(tf.Module):
    """The segmentation of words by the sum of their pieces' scores.

    Args:
        model: the entry "model" of tokenizer.json.
    """

    def __init__(self, model: dict[str, Any]) -> None:
        super().__init__(name="pieces")
        if model.get("byte_fallback") or model["unk_id"] is None:
            raise cannot_run_in_graph(
                "it makes bytes of unknown characters" if model.get("byte_fallback") else "it has no unknown piece"
            )
        self._unknown = int(model["unk_id"])
        numbers = {piece: number for number, (piece, _) in enumerate(model["vocab"])}
        scores = np.array([score for _, score in model["vocab"]], np.float64)
        self._longest = max(map(len, numbers))
        edges, pieces = _trie(numbers)
        order = np.argsort(edges)
        # Edges are sorted; the node at the end of the edge with number e (in order of creation) is e + 1.
        self._edges = tf.Variable(np.array([*edges[order], np.iinfo(np.int64).max]), trainable=False, name="edges")
        self._nodes = tf.Variable(np.array([*(order + 1), 0]), trainable=False, name="nodes")
        self._piece_of = tf.Variable(pieces, trainable=False, name="piece_of")
        self._scores = tf.Variable(scores, trainable=False, name="scores")
        self._unknown_score = float(scores.min()) - _UNKNOWN_PENALTY

    def __call__(self, runs: Runs) -> tuple[tf.Tensor, tf.Tensor]:
        """Segment words.

        Args:
            runs: the words, with their numbers as rows. A special token is a word.

        Returns:
            int32 ids of the pieces and the int64 word of each piece, ascending.
        """
        starts = starts_of(runs.rows)
        word = tf.cumsum(tf.cast(starts, tf.int64)) - 1
        place = positions_in_rows(word)
        first = tf.where(starts)[:, 0]
        sizes = tf.math.segment_sum(tf.ones_like(word), word)
        longest = tf.reduce_max(tf.concat([sizes, [0]], axis=0))
        too_long = f"a word of more than {LONGEST_WORD:,} characters cannot be tokenized"
        with tf.control_dependencies(
            [tf.debugging.assert_less_equal(longest, tf.constant(LONGEST_WORD, tf.int64), too_long)]
        ):
            pieces = self._pieces_from(tf.cast(runs.points, tf.int64), tf.gather(first + sizes, word))
        back = _best_lengths(self._scores_to(pieces, place), first, sizes, word, place, longest)
        begins = tf.where(_cuts(back, first, sizes))[:, 0]
        lengths = tf.concat([begins[1:], [tf.size(word, out_type=tf.int64)]], axis=0)[: tf.size(begins)] - begins
        ids = tf.gather_nd(pieces, tf.stack([begins, lengths - 1], axis=1))
        ids = tf.where(ids < 0, self._unknown, ids)
        heads = tf.gather(runs.points, begins)
        ids = tf.where(is_special(heads), heads - SPECIAL, ids)
        # Adjacent unknown characters of a word form one unknown piece.
        unknown = (ids == self._unknown) & ~is_special(heads)
        again = tf.concat([tf.zeros_like(unknown[:1]), unknown[:-1]], axis=0) & unknown
        keep = ~(again & ~starts_of(tf.gather(word, begins)))
        kept = places_of(keep)
        return tf.gather(ids, kept), tf.gather(runs.rows, tf.gather(begins, kept))

    def _pieces_from(self, points: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        """Return int32 [C, longest]: the piece of each length that begins at each character, or -1."""
        here = tf.range(tf.size(points, out_type=tf.int64))
        node = tf.zeros_like(points)
        alive = tf.ones_like(points, tf.bool)
        found = []
        for size in range(self._longest):
            last = here + size
            alive &= last < end
            point = tf.gather(points, tf.where(alive, last, here))
            edge = node * _SHIFT + point
            at = tf.searchsorted(self._edges, edge, out_type=tf.int64)
            alive &= tf.gather(self._edges, at) == edge
            node = tf.where(alive, tf.gather(self._nodes, at), tf.zeros_like(node))
            found.append(tf.where(alive, tf.gather(self._piece_of, node), -1))
        return tf.stack(found, axis=1)

    def _scores_to(self, pieces: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
        """Return float64 [C, longest]: the score of the piece of each length that ends at each character."""
        scores = tf.where(pieces >= 0, tf.gather(self._scores, tf.maximum(pieces, 0)), -np.inf)
        # A single character that is not a piece counts as unknown, with a penalty.
        single = tf.where(pieces[:, :1] >= 0, scores[:, :1], self._unknown_score)
        scores = tf.reshape(tf.concat([single, scores[:, 1:]], axis=1), [-1])
        size = tf.range(self._longest, dtype=tf.int64)[None, :]
        here = tf.range(tf.size(place, out_type=tf.int64))[:, None]
        inside = size <= place[:, None]
        source = (here - size) * self._longest + size
        return tf.where(inside, tf.gather(scores, tf.where(inside, source, 0)), -np.inf)


def _trie(numbers: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return a trie of the pieces: the edges (node and character as one number), and each node's piece or -1."""
    edges: dict[int, int] = {}
    pieces = [-1]
    for piece, number in numbers.items():
        node = 0
        for character in piece:
            edge = node * _SHIFT + ord(character)
            if edge not in edges:
                edges[edge] = len(pieces)
                pieces.append(-1)
            node = edges[edge]
        if node:
            pieces[node] = number
    return np.array(list(edges), np.int64), np.array(pieces, np.int32)


def _best_lengths(
    scores: tf.Tensor, first: tf.Tensor, sizes: tf.Tensor, word: tf.Tensor, place: tf.Tensor, longest: tf.Tensor
) -> tf.Tensor:
    """Return int64 [C]: the length of the last piece if the word ended with this character.

    All words are processed at once, character by character. The longest words come first, so that the unfinished words
    are always a prefix.
    """
    order = tf.argsort(sizes, direction="DESCENDING", stable=True)
    ascending = tf.reverse(tf.gather(sizes, order), [0])
    nr_words = tf.size(sizes, out_type=tf.int64)
    active = nr_words - tf.searchsorted(ascending, tf.range(longest) + 1, out_type=tf.int64)
    begins = tf.gather(first, order)
    width = scores.shape[1]
    # Column j: the best sum up to j + 1 characters before.
    sums = tf.concat(
        [tf.zeros([nr_words, 1], tf.float64), tf.fill([nr_words, width - 1], tf.constant(-np.inf, tf.float64))], 1
    )
    lengths = tf.range(1, width + 1, dtype=tf.int64)[None, :]
    taken = tf.TensorArray(tf.int64, tf.cast(longest, tf.int32), infer_shape=False, element_shape=[None])

    def step(at: tf.Tensor, sums: tf.Tensor, taken: tf.TensorArray) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
        count = active[at]
        candidates = tf.gather(scores, begins[:count] + at) + sums[:count]
        best = tf.reduce_max(candidates, axis=1, keepdims=True)
        # The tokenizers library breaks ties by the longest piece.
        length = tf.reduce_max(tf.where(candidates == best, lengths, 0), axis=1)
        sums = tf.ensure_shape(tf.concat([best, sums[:count, :-1]], axis=1), [None, width])
        return at + 1, sums, taken.write(tf.cast(at, tf.int32), length)

    _, _, taken = tf.while_loop(
        lambda at, *_: at < longest,
        step,
        [tf.zeros([], tf.int64), sums, taken],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, width]), None],
        parallel_iterations=1,
    )
    rank = tf.scatter_nd(order[:, None], tf.range(tf.size(order)), tf.shape(order))
    offsets = tf.cumsum(active, exclusive=True)
    places = tf.gather(offsets, place) + tf.cast(tf.gather(rank, word), tf.int64)
    return tf.gather(tf.cond(longest > 0, taken.concat, lambda: tf.zeros([0], tf.int64)), places)


def _cuts(back: tf.Tensor, first: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
    """Return bool [C]: whether a piece begins at each character, found by going backwards through the words."""

    def step(last: tf.Tensor, begin: tf.Tensor, found: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        cut = last - tf.gather(back, last) + 1
        found = tf.tensor_scatter_nd_update(found, cut[:, None], tf.ones_like(cut, tf.bool))
        more = cut > begin
        left = places_of(more)
        return tf.gather(cut - 1, left), tf.gather(begin, left), found

    _, _, found = tf.while_loop(
        lambda last, begin, found: tf.size(last) > 0,
        step,
        [first + sizes - 1, first, tf.zeros_like(back, tf.bool)],
        shape_invariants=[tf.TensorShape([None]), tf.TensorShape([None]), tf.TensorShape([None])],
        parallel_iterations=1,
    )
    return found

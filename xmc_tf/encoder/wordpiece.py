"""BERT's kind of tokenizer in the graph: words at spaces, punctuation and CJK characters, then the longest pieces."""

import json
from functools import lru_cache
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.core.pybinds.pywrap_fast_wordpiece_tokenizer_model_builder import build_fast_wordpiece_model
from tokenizers import Tokenizer

from xmc_tf.encoder.code_points import (
    SPECIAL,
    CharacterTable,
    Runs,
    ask_everywhere,
    at_places,
    encode,
    keep_only,
    places_of,
    positions_in_rows,
    rows_of,
)
from xmc_tf.encoder.special_tokens import is_special, no_twin, segment_starts

_SPACE = 0x20


class WordPiece(tf.Module):
    """Marked texts to the ids of their pieces.

    Args:
        backend: the tokenizer.
        config: the same as JSON.
    """

    def __init__(self, backend: Tokenizer, config: dict[str, Any]) -> None:
        super().__init__(name="wordpiece")
        normalizer, splitter, model = config["normalizer"], config["pre_tokenizer"], config["model"]
        if not normalizer or normalizer["type"] != "BertNormalizer":
            raise no_twin(f"its normalizer is {normalizer and normalizer['type']}, not BERT's")
        if not splitter or splitter["type"] != "BertPreTokenizer":
            raise no_twin(f"it finds words by {splitter and splitter['type']}, not as BERT does")
        if any(token["normalized"] for token in config["added_tokens"]):
            raise no_twin("it has added tokens that are found after normalisation")
        self._table = CharacterTable(_what_becomes_of_characters(json.dumps([normalizer, splitter]), backend))
        self._longest = int(model["max_input_chars_per_word"])
        pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
        if [model["vocab"][piece] for piece in pieces] != list(range(len(pieces))):
            raise no_twin("its vocabulary has gaps")
        # A word that the vocabulary knows nothing of, whatever pieces it has: for words that are to be unknown.
        used = {character for piece in pieces for character in piece}
        self._unknown = next(point for point in range(0xE000, 0xF900) if chr(point) not in used)
        compiled = build_fast_wordpiece_model(
            pieces, 4 * self._longest, model["continuing_subword_prefix"], model["unk_token"], True, False
        )
        # A variable: a constant of a megabyte would be there once for every copy that a server makes of a graph.
        self._compiled = tf.Variable(np.frombuffer(compiled, np.uint8), trainable=False, name="pieces")

    def __call__(self, marked: Runs, limit: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Tokenize.

        Args:
            marked: texts in which special tokens are marked.
            limit: so many tokens of each text are enough.

        Returns:
            int32 ids and the int64 row of each, ascending.
        """
        runs = self._table(marked)
        space = runs.points == _SPACE
        behind = tf.concat([tf.zeros_like(space[:1]), space[:-1]], axis=0)
        # A new word begins behind a space and at the border of a segment.
        inner = places_of(~space)
        starts = tf.gather(segment_starts(runs) | behind, inner)
        runs = at_places(runs, inner)
        word = tf.cumsum(tf.cast(starts, tf.int64)) - 1
        heads = at_places(runs, places_of(starts))
        place = positions_in_rows(word)
        # Special tokens, and words longer than the tokenizer takes, are unknown words of one character for now.
        nr_words = tf.size(heads.rows, out_type=tf.int64)
        longer = tf.gather(tf.math.unsorted_segment_max(place, word, nr_words), word) >= self._longest
        points = tf.where(is_special(runs.points) | longer, self._unknown, runs.points)
        short = keep_only(Runs(points, word), ~longer | (place == 0))
        tokenizer = tf_text.FastWordpieceTokenizer(
            model_buffer=self._compiled.value(), token_out_type=tf.int32, no_pretokenization=True
        )
        pieces = tokenizer.tokenize(encode(short, nr_words))
        head = at_places(heads, rows_of(pieces.row_splits))
        return tf.where(is_special(head.points), head.points - SPECIAL, pieces.values), head.rows


@lru_cache(maxsize=4)
def _what_becomes_of_characters(key: str, backend: Tokenizer) -> list[str | None]:
    """Each character after normalisation, with spaces where a word ends; ``key`` says what decides it."""
    normalize, split = backend.normalizer.normalize_str, backend.pre_tokenizer.pre_tokenize_str
    return ask_everywhere(lambda text: [word for word, _ in split(normalize(text))])

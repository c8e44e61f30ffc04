"""BERT's tokenizer in the graph: words split at spaces, punctuation and CJK characters, then longest pieces."""

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
    encode,
    map_every_character,
    places_of,
    positions_in_rows,
    rows_of,
    shifted,
    tokenizer_with,
)
from xmc_tf.encoder.special_tokens import cannot_run_in_graph, is_special, segment_starts

_SPACE = 0x20


class WordPiece(tf.Module):
    """The conversion of texts with marked special tokens to piece ids."""

    def __init__(self, backend: Tokenizer, config: dict[str, Any]) -> None:
        super().__init__(name="wordpiece")
        normalizer, splitter, model = config["normalizer"], config["pre_tokenizer"], config["model"]
        if not normalizer or normalizer["type"] != "BertNormalizer":
            raise cannot_run_in_graph(f"its normalizer is {normalizer and normalizer['type']}, not BERT's")
        if not splitter or splitter["type"] != "BertPreTokenizer":
            raise cannot_run_in_graph(f"it finds words by {splitter and splitter['type']}, not as BERT does")
        if any(token["normalized"] for token in config["added_tokens"]):
            raise cannot_run_in_graph("it has added tokens that are found after normalisation")
        self._table = CharacterTable(_normalized_characters(json.dumps([normalizer, splitter])))
        self._longest = int(model["max_input_chars_per_word"])
        pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
        if [model["vocab"][piece] for piece in pieces] != list(range(len(pieces))):
            raise cannot_run_in_graph("its vocabulary has gaps")
        # A word without any piece in the vocabulary, to stand for unknown words.
        used = {character for piece in pieces for character in piece}
        self._unknown = next(point for point in range(0xE000, 0xF900) if chr(point) not in used)
        compiled = build_fast_wordpiece_model(
            pieces, 4 * self._longest, model["continuing_subword_prefix"], model["unk_token"], True, False
        )
        # A variable, because a constant of a megabyte would exist once per copy that a server makes of a graph.
        self._compiled = tf.Variable(np.frombuffer(compiled, np.uint8), trainable=False, name="pieces")

    def __call__(self, marked: Runs, limit: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Return int32 ids and the int64 row of each, ascending; at least the first ``limit`` of each text."""
        runs = self._table(marked)
        space = runs.points == _SPACE
        # A word begins after a space and at the start of a segment.
        inner = places_of(~space)
        starts = tf.gather(segment_starts(runs) | shifted(space), inner)
        runs = runs.at(inner)
        word = tf.cumsum(tf.cast(starts, tf.int64)) - 1
        heads = runs.at(places_of(starts))
        place = positions_in_rows(word)
        # For now, special tokens and words longer than the tokenizer's maximum are unknown words of one character.
        nr_words = tf.size(heads.rows, out_type=tf.int64)
        longer = tf.gather(tf.math.unsorted_segment_max(place, word, nr_words), word) >= self._longest
        points = tf.where(is_special(runs.points) | longer, self._unknown, runs.points)
        short = Runs(points, word).kept(~longer | (place == 0))
        tokenizer = tf_text.FastWordpieceTokenizer(
            model_buffer=self._compiled.value(), token_out_type=tf.int32, no_pretokenization=True
        )
        pieces = tokenizer.tokenize(encode(short, nr_words))
        head = heads.at(rows_of(pieces.row_splits))
        return tf.where(is_special(head.points), head.points - SPECIAL, pieces.values), head.rows


@lru_cache(maxsize=4)
def _normalized_characters(rules: str) -> list[str | None]:
    """Return each character after normalization, with spaces where a word ends."""
    normalizer, splitter = json.loads(rules)
    backend = tokenizer_with(normalizer=normalizer, pre_tokenizer=splitter)
    normalize, split = backend.normalizer.normalize_str, backend.pre_tokenizer.pre_tokenize_str
    return map_every_character(lambda text: [word for word, _ in split(normalize(text))])

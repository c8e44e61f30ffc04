"""A tokenizer in the TensorFlow graph, which returns the same ids as `TextTokenizer.windows`."""

import json
from functools import lru_cache
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.core.pybinds.pywrap_fast_wordpiece_tokenizer_model_builder import build_fast_wordpiece_model
from tokenizers import Tokenizer

from xmc_tf.data.windows import WindowOptions
from xmc_tf.encoder.byte_pairs import BytePairs
from xmc_tf.encoder.code_points import (
    CharacterTable,
    Runs,
    SpecialTokens,
    cannot_run_in_graph,
    decode,
    map_every_character,
    pieces_of,
    places_of,
    positions_in_rows,
    shifted,
    splits_of,
    tokenizer_with,
)
from xmc_tf.encoder.unigram import Unigram

_TEXT = tf.TensorSpec([None], tf.string, name="text")
_SPACE = 0x20


class GraphTokenizer(tf.Module):
    """A tokenizer made of TensorFlow ops, which turns strings into padded ids and a mask."""

    def __init__(self, of: Any, reading: WindowOptions) -> None:  # of a TextTokenizer
        super().__init__(name="tokenizer")
        backend, self._prompt, self._nr_of_prompt = of.backend, of.prompt, of.nr_of_prompt
        config = json.loads(backend.to_str())
        kind = config["model"]["type"]
        if kind not in _MODELS:
            raise cannot_run_in_graph(f"its model is {kind}, not {' or '.join(_MODELS)}")
        added = config["added_tokens"]
        self._raw = SpecialTokens([token for token in added if not token["normalized"]])
        with tf.device("CPU:0"):
            self._model = _MODELS[kind](backend, config)
        self._before, self._behind, self._pad_id = tuple(of.before), tuple(of.behind), of.pad_id
        self._limit = reading.max_length - len(of.before) - len(of.behind) - of.nr_of_prompt
        self._most = reading.max_windows
        self._check(of, reading)

    @property
    def modules_to_save(self) -> list[tf.Module]:
        return [self._model]

    @tf.function(input_signature=[_TEXT], autograph=False)
    def __call__(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return int32 ids and a mask, both [windows, T]. If ``max_windows`` is 1, each text is one window."""
        return self.windows(texts)[:2]

    @tf.function(input_signature=[_TEXT], autograph=False)
    def windows(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return the ids and mask of ``__call__``, and the text number of each window (int64, ascending)."""
        with tf.device("CPU:0"):  # there are no string kernels on a GPU
            nr_rows = tf.size(texts, out_type=tf.int64)
            texts = tf.strings.join([self._prompt, texts]) if self._prompt else texts
            ids, rows = self._model(self._raw.mark(decode(texts)), self._nr_of_prompt + self._most * self._limit)
            splits = splits_of(rows, nr_rows)
            start, sizes, text = splits[:-1], splits[1:] - splits[:-1], tf.range(nr_rows)
            of_prompt = tf.minimum(sizes, self._nr_of_prompt)
            first, sizes = start + of_prompt, sizes - of_prompt
            if self._most == 1:
                sizes = tf.minimum(sizes, self._limit)
            else:
                first, sizes, text = self._fold(first, sizes)
                start, of_prompt = tf.gather(start, text), tf.gather(of_prompt, text)
            return *self._padded(ids, *(one[:, None] for one in (start, of_prompt, first, sizes))), text

    def _fold(self, first: tf.Tensor, sizes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Split texts like `window_bounds`; return the first token, the length and the text of each window."""
        counts = tf.clip_by_value((sizes + self._limit - 1) // self._limit, 1, self._most)
        kept = tf.minimum(sizes, counts * self._limit)
        text = tf.repeat(tf.range(tf.size(sizes, out_type=tf.int64)), counts)
        number = tf.range(tf.size(text, out_type=tf.int64)) - tf.gather(tf.cumsum(counts, exclusive=True), text)
        counts, kept = tf.gather(counts, text), tf.gather(kept, text)
        low, high = number * kept // counts, (number + 1) * kept // counts
        return tf.gather(first, text) + low, high - low, text

    def _padded(
        self, ids: tf.Tensor, start: tf.Tensor, of_prompt: tf.Tensor, first: tf.Tensor, sizes: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Add special tokens, prompt and padding to windows; return ids and mask. All but ``ids`` are [n, 1].

        A window has ``of_prompt`` tokens from ``start`` on, and ``sizes`` tokens from ``first`` on.
        """
        whole = of_prompt + sizes
        nr_before, nr_behind, count = len(self._before), len(self._behind), tf.size(ids, out_type=tf.int64)
        extra = tf.constant([*self._before, *self._behind, self._pad_id], tf.int32)
        longest = tf.reduce_max(tf.concat([[[0]], whole], axis=0), axis=0)
        place = tf.range(nr_before + longest[0] + nr_behind)[None]
        end, inner = nr_before + whole, place - nr_before
        # The token at each place: before the text, of it, after it, or padding.
        at = tf.where(place < end + nr_behind, count + nr_before + place - end, count + nr_before + nr_behind)
        at = tf.where(place < end, tf.where(inner < of_prompt, start + inner, first + inner - of_prompt), at)
        at = tf.where(place < nr_before, count + place, at)
        mask = tf.cast(place < end + nr_behind, tf.int32)
        return tf.gather(tf.concat([ids, extra], axis=0), at), mask

    def _check(self, of: Any, reading: WindowOptions) -> None:
        """Compare the ids with the original tokenizer's on difficult texts, because many tokenizers are customized."""
        ids, mask, texts = (one.numpy() for one in self.windows(tf.constant(_PROBES)))
        for number, text in enumerate(_PROBES):
            expected = [window.tolist() for window in of.windows([text], reading)[0]]
            rows = zip(ids[texts == number], mask[texts == number], strict=True)
            found = [row[seen > 0].tolist() for row, seen in rows]
            if found != expected:
                raise cannot_run_in_graph(f"for {text!r} the graph gives {found} instead of {expected}")


class WordPiece(tf.Module):
    """BERT's tokenizer: splits texts at spaces, punctuation and CJK characters, and words into the longest pieces."""

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
        """Return int32 ids and their rows (int64, ascending): at least the first ``limit`` ids of each text."""
        runs = self._table(marked)
        space = runs.points == _SPACE
        # A word begins after a space and at the start of a segment.
        inner = places_of(~space)
        starts = tf.gather(runs.segment_starts() | shifted(space), inner)
        runs = runs.at(inner)
        word = tf.cumsum(tf.cast(starts, tf.int64)) - 1
        heads = runs.at(places_of(starts))
        place = positions_in_rows(word)
        # For now, special tokens and words longer than the tokenizer's maximum are unknown words of one character.
        nr_words = tf.size(heads.rows, out_type=tf.int64)
        longer = tf.gather(tf.math.unsorted_segment_max(place, word, nr_words), word) >= self._longest
        points = tf.where(runs.special() | longer, self._unknown, runs.points)
        short = Runs(points, word).kept(~longer | (place == 0))
        tokenizer = tf_text.FastWordpieceTokenizer(
            model_buffer=self._compiled.value(), token_out_type=tf.int32, no_pretokenization=True
        )
        return pieces_of(tokenizer, short, heads)


@lru_cache(maxsize=4)
def _normalized_characters(rules: str) -> list[str | None]:
    """Return the normalized form of each character, with spaces where BERT splits words; None means unchanged."""
    normalizer, splitter = json.loads(rules)
    backend = tokenizer_with(normalizer=normalizer, pre_tokenizer=splitter)
    normalize, split = backend.normalizer.normalize_str, backend.pre_tokenizer.pre_tokenize_str
    return map_every_character(lambda text: [word for word, _ in split(normalize(text))])


_MODELS: dict[str, Any] = {"WordPiece": WordPiece, "Unigram": Unigram, "BPE": BytePairs}
_PROBES = [
    "", " ", "Hello, World!  A  test", "Čeština, Ångström, naïve, Ελληνικά ς, İstanbul, Straße",
    "日本語テスト 中文", "한국어 조선말", "😀👩‍👩‍👧 ok", "\x00a\x01b\tc\nd\r\ne\x7f\x85f\ufffd\u200bg\ufeff",
    "(a)[b]{c}«d»…—–’“”、。", "ﬁne ｆｕｌｌ ① ½ Ⅳ ㎏ ²", "e\u0301 o\u0308 \u0301x ᾳ", "x" * 150, "ab " * 30,
    "``quoted'' '''  `", "a b\u3000c\u2028d", "1234567890 1.5 10,000 $5 50%", "[CLS] <s> </s> <unk> [MASK]",
    "http://a.b/c?d=e&f#g user@host_name", "ﷺ ﷲ عربى हिन्दी ไทย",
]  # fmt: skip

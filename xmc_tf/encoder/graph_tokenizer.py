"""The tokenizer's twin in the graph: the same ids as `TextTokenizer.tokenize`, of TensorFlow's own ops."""

import json
from typing import Any

import tensorflow as tf
from tokenizers import Tokenizer

from xmc_tf.encoder.code_points import decode, splits_of
from xmc_tf.encoder.special_tokens import SpecialTokens, no_twin
from xmc_tf.encoder.unigram import Unigram
from xmc_tf.encoder.wordpiece import WordPiece

_TEXT = tf.TensorSpec([None], tf.string, name="text")
_MODELS: dict[str, Any] = {"WordPiece": WordPiece, "Unigram": Unigram}


class GraphTokenizer(tf.Module):
    """Texts in, padded ids and mask out; its ops are TensorFlow's own and one of tensorflow_text.

    Example:
        >>> ids, mask = tokenizer.in_graph(64)(tf.constant(["first text", "second text"]))

    Args:
        backend: the tokenizer whose twin it is.
        before: special tokens before every text.
        behind: special tokens behind it.
        max_length: most tokens of a text, special ones included.
        pad_id: what to fill up with.

    Raises:
        InputError: when the tokenizer is of a kind that has no twin, such as RoBERTa's byte pairs.
    """

    def __init__(self, backend: Tokenizer, before: list[int], behind: list[int], max_length: int, pad_id: int) -> None:
        super().__init__(name="tokenizer")
        config = json.loads(backend.to_str())
        kind = config["model"]["type"]
        if kind not in _MODELS:
            raise no_twin(f"its model is {kind}; {' and '.join(_MODELS)} have one")
        added = config["added_tokens"]
        self._raw = SpecialTokens([token for token in added if not token["normalized"]])
        with tf.device("CPU:0"):
            self._model = _MODELS[kind](backend, config)
        self._before, self._behind = tuple(before), tuple(behind)
        self._limit = max_length - len(before) - len(behind)
        self._pad_id = pad_id
        self._check(backend)

    @property
    def holds(self) -> list[tf.Module]:
        """What must be saved with a graph that the twin is part of."""
        return [self._model]

    @tf.function(input_signature=[_TEXT], autograph=False)
    def __call__(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Tokenize.

        Args:
            texts: strings [n].

        Returns:
            int32 ids and mask, [n, T], T being the length of the longest of them.
        """
        with tf.device("CPU:0"):  # there are no string kernels on a GPU
            nr_rows = tf.size(texts, out_type=tf.int64)
            ids, rows = self._model(self._raw.mark(decode(texts)), self._limit)
            return self._laid_out(ids, splits_of(rows, nr_rows))

    def _laid_out(self, ids: tf.Tensor, splits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Padded ids and mask of the ids of all texts, special tokens around each."""
        nr_before, nr_behind, count = len(self._before), len(self._behind), tf.size(ids, out_type=tf.int64)
        extra = tf.constant([*self._before, *self._behind, self._pad_id], tf.int32)
        first, sizes = splits[:-1, None], tf.minimum(splits[1:] - splits[:-1], self._limit)[:, None]
        longest = tf.reduce_max(tf.concat([[[0]], sizes], axis=0), axis=0)
        place = tf.range(nr_before + longest[0] + nr_behind)[None]
        end = nr_before + sizes
        # Of each place what stands there: a token before the text, of it, behind it, or nothing.
        at = tf.where(place < end + nr_behind, count + nr_before + place - end, count + nr_before + nr_behind)
        at = tf.where(place < end, first + place - nr_before, at)
        at = tf.where(place < nr_before, count + place, at)
        mask = tf.cast(place < end + nr_behind, tf.int32)
        return tf.gather(tf.concat([ids, extra], axis=0), at), mask

    def _check(self, backend: Tokenizer) -> None:
        """Compare with the original on texts that differ where anything does; most tokenizers are one's own."""
        ids, mask = self(tf.constant(_PROBES))
        for text, row, length in zip(_PROBES, ids.numpy(), mask.numpy().sum(axis=1), strict=True):
            inner = backend.encode(text, add_special_tokens=False).ids[: self._limit]
            expected = [*self._before, *inner, *self._behind]
            if row[:length].tolist() != expected:
                raise no_twin(f"for {text!r} the graph gives {row[:length].tolist()} instead of {expected}")


_PROBES = [
    "",
    " ",
    "Hello, World!  A  test",
    "Čeština, Ångström, naïve, Ελληνικά ς, İstanbul, Straße",
    "日本語テスト 中文",
    "한국어 조선말",
    "😀👩‍👩‍👧 ok",
    "\x00a\x01b\tc\nd\r\ne\x7f\x85f\ufffd\u200bg\ufeff",
    "(a)[b]{c}«d»…—–’“”、。",
    "ﬁne ｆｕｌｌ ① ½ Ⅳ ㎏ ²",
    "e\u0301 o\u0308 \u0301x ᾳ",
    "x" * 150,
    "ab " * 30,
    "``quoted'' '''  `",
    "a b\u3000c\u2028d",
    "1234567890 1.5 10,000 $5 50%",
    "[CLS] <s> </s> <unk> [MASK]",
    "http://a.b/c?d=e&f#g user@host_name",
    "ﷺ ﷲ عربى हिन्दी ไทย",
]

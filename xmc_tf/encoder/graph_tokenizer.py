"""The tokenizer in the graph: the same ids as `TextTokenizer.tokenize`, from TensorFlow ops."""

import json
from typing import Any

import tensorflow as tf
from tokenizers import Tokenizer

from xmc_tf.encoder.code_points import decode, splits_of
from xmc_tf.encoder.special_tokens import SpecialTokens, cannot_run_in_graph
from xmc_tf.encoder.unigram import Unigram
from xmc_tf.encoder.wordpiece import WordPiece

_TEXT = tf.TensorSpec([None], tf.string, name="text")
_MODELS: dict[str, Any] = {"WordPiece": WordPiece, "Unigram": Unigram}


class GraphTokenizer(tf.Module):
    """A tokenizer of TensorFlow ops and one op of tensorflow_text: strings to padded ids and mask.

    Example:
        >>> ids, mask = tokenizer.in_graph(64)(tf.constant(["first text", "second text"]))

    Args:
        backend: the tokenizer to reproduce.
        before: special tokens before every text.
        behind: special tokens after every text.
        max_length: maximum number of tokens of a text, including special ones.
        pad_id: the padding id.

    Raises:
        InputError: a tokenizer of this kind cannot run in the graph, such as RoBERTa's byte-pair encoding.
    """

    def __init__(self, backend: Tokenizer, before: list[int], behind: list[int], max_length: int, pad_id: int) -> None:
        super().__init__(name="tokenizer")
        config = json.loads(backend.to_str())
        kind = config["model"]["type"]
        if kind not in _MODELS:
            raise cannot_run_in_graph(f"its model is {kind}, not {' or '.join(_MODELS)}")
        added = config["added_tokens"]
        self._raw = SpecialTokens([token for token in added if not token["normalized"]])
        with tf.device("CPU:0"):
            self._model = _MODELS[kind](backend, config)
        self._before, self._behind = tuple(before), tuple(behind)
        self._limit = max_length - len(before) - len(behind)
        self._pad_id = pad_id
        self._check(backend)

    @property
    def modules_to_save(self) -> list[tf.Module]:
        """The modules to save with a graph that contains this tokenizer."""
        return [self._model]

    @tf.function(input_signature=[_TEXT], autograph=False)
    def __call__(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Tokenize texts.

        Args:
            texts: strings [n].

        Returns:
            int32 ids and mask, [n, T], where T is the length of the longest text.
        """
        with tf.device("CPU:0"):  # there are no string kernels on a GPU
            nr_rows = tf.size(texts, out_type=tf.int64)
            ids, rows = self._model(self._raw.mark(decode(texts)), self._limit)
            return self._padded(ids, splits_of(rows, nr_rows))

    def _padded(self, ids: tf.Tensor, splits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return padded ids and mask from the ids of all texts, with special tokens around each text."""
        nr_before, nr_behind, count = len(self._before), len(self._behind), tf.size(ids, out_type=tf.int64)
        extra = tf.constant([*self._before, *self._behind, self._pad_id], tf.int32)
        first, sizes = splits[:-1, None], tf.minimum(splits[1:] - splits[:-1], self._limit)[:, None]
        longest = tf.reduce_max(tf.concat([[[0]], sizes], axis=0), axis=0)
        place = tf.range(nr_before + longest[0] + nr_behind)[None]
        end = nr_before + sizes
        # The token at each place: before the text, of it, after it, or padding.
        at = tf.where(place < end + nr_behind, count + nr_before + place - end, count + nr_before + nr_behind)
        at = tf.where(place < end, first + place - nr_before, at)
        at = tf.where(place < nr_before, count + place, at)
        mask = tf.cast(place < end + nr_behind, tf.int32)
        return tf.gather(tf.concat([ids, extra], axis=0), at), mask

    def _check(self, backend: Tokenizer) -> None:
        """Compare with the original on texts that expose differences, because many tokenizers are custom-made."""
        ids, mask = self(tf.constant(_PROBES))
        for text, row, length in zip(_PROBES, ids.numpy(), mask.numpy().sum(axis=1), strict=True):
            inner = backend.encode(text, add_special_tokens=False).ids[: self._limit]
            expected = [*self._before, *inner, *self._behind]
            if row[:length].tolist() != expected:
                raise cannot_run_in_graph(f"for {text!r} the graph gives {row[:length].tolist()} instead of {expected}")


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

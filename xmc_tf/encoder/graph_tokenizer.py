"""The tokenizer in the graph: the same ids as `TextTokenizer.windows`, from TensorFlow ops."""

import json
from typing import Any

import tensorflow as tf
from tokenizers import Tokenizer

from xmc_tf.data.reading import Reading, window_bounds
from xmc_tf.encoder.code_points import decode, splits_of
from xmc_tf.encoder.special_tokens import SpecialTokens, cannot_run_in_graph
from xmc_tf.encoder.unigram import Unigram
from xmc_tf.encoder.wordpiece import WordPiece

_TEXT = tf.TensorSpec([None], tf.string, name="text")
_MODELS: dict[str, Any] = {"WordPiece": WordPiece, "Unigram": Unigram}


class GraphTokenizer(tf.Module):
    """A tokenizer as TensorFlow ops: strings to padded ids and mask."""

    def __init__(self, backend: Tokenizer, before: list[int], behind: list[int], reading: Reading, pad_id: int) -> None:
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
        self._limit, self._most = reading.max_length - len(before) - len(behind), reading.max_windows
        self._pad_id = pad_id
        self._check(backend)

    @property
    def modules_to_save(self) -> list[tf.Module]:
        """The modules to save with a graph that contains this tokenizer."""
        return [self._model]

    @tf.function(input_signature=[_TEXT], autograph=False)
    def __call__(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return int32 ids and mask [windows, T]; unless long texts have several windows, each text is one window."""
        return self.windows(texts)[:2]

    @tf.function(input_signature=[_TEXT], autograph=False)
    def windows(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return ids and mask as a call does, and the text of each window: int64, ascending."""
        with tf.device("CPU:0"):  # there are no string kernels on a GPU
            nr_rows = tf.size(texts, out_type=tf.int64)
            ids, rows = self._model(self._raw.mark(decode(texts)), self._most * self._limit)
            splits = splits_of(rows, nr_rows)
            first, sizes, text = splits[:-1], splits[1:] - splits[:-1], tf.range(nr_rows)
            if self._most == 1:
                sizes = tf.minimum(sizes, self._limit)
            else:
                first, sizes, text = self._fold(first, sizes)
            return *self._padded(ids, first[:, None], sizes[:, None]), text

    def _fold(self, first: tf.Tensor, sizes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return first token, number of tokens and text of each window, like `xmc_tf.data.reading.window_bounds`."""
        counts = tf.clip_by_value((sizes + self._limit - 1) // self._limit, 1, self._most)
        kept = tf.minimum(sizes, counts * self._limit)
        text = tf.repeat(tf.range(tf.size(sizes, out_type=tf.int64)), counts)
        number = tf.range(tf.size(text, out_type=tf.int64)) - tf.gather(tf.cumsum(counts, exclusive=True), text)
        counts, kept = tf.gather(counts, text), tf.gather(kept, text)
        low, high = number * kept // counts, (number + 1) * kept // counts
        return tf.gather(first, text) + low, high - low, text

    def _padded(self, ids: tf.Tensor, first: tf.Tensor, sizes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return padded ids and mask of windows with their special tokens; first tokens and sizes are [n, 1]."""
        nr_before, nr_behind, count = len(self._before), len(self._behind), tf.size(ids, out_type=tf.int64)
        extra = tf.constant([*self._before, *self._behind, self._pad_id], tf.int32)
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
        ids, mask, texts = (one.numpy() for one in self.windows(tf.constant(_PROBES)))
        for number, text in enumerate(_PROBES):
            inner = backend.encode(text, add_special_tokens=False).ids
            bounds = window_bounds(len(inner), self._limit, self._most)
            expected = [[*self._before, *inner[low:high], *self._behind] for low, high in bounds]
            rows = zip(ids[texts == number], mask[texts == number], strict=True)
            found = [row[seen > 0].tolist() for row, seen in rows]
            if found != expected:
                raise cannot_run_in_graph(f"for {text!r} the graph gives {found} instead of {expected}")


_PROBES = [
    "", " ", "Hello, World!  A  test", "Čeština, Ångström, naïve, Ελληνικά ς, İstanbul, Straße",
    "日本語テスト 中文", "한국어 조선말", "😀👩‍👩‍👧 ok", "\x00a\x01b\tc\nd\r\ne\x7f\x85f\ufffd\u200bg\ufeff",
    "(a)[b]{c}«d»…—–’“”、。", "ﬁne ｆｕｌｌ ① ½ Ⅳ ㎏ ²", "e\u0301 o\u0308 \u0301x ᾳ", "x" * 150, "ab " * 30,
    "``quoted'' '''  `", "a b\u3000c\u2028d", "1234567890 1.5 10,000 $5 50%", "[CLS] <s> </s> <unk> [MASK]",
    "http://a.b/c?d=e&f#g user@host_name", "ﷺ ﷲ عربى हिन्दी ไทย",
]  # fmt: skip

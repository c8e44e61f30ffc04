"""SentencePiece's tokenizer in the TensorFlow graph: normalization, words, and the most likely pieces of each word."""

import base64
import json
from collections.abc import Callable
from functools import lru_cache
from itertools import takewhile
from typing import Any

import tensorflow as tf
import tensorflow_text as tf_text
from tokenizers import Tokenizer

from xmc_tf.common.protobuf import field
from xmc_tf.encoder.charsmap import Charsmap
from xmc_tf.encoder.code_points import (
    CharacterTable,
    Runs,
    SpecialTokens,
    cannot_run_in_graph,
    flat,
    map_every_character,
    pieces_of,
    places_of,
    positions_in_rows,
    shifted,
    starts_of,
    tokenizer_with,
)

Step = Callable[[Runs], Runs]

# Types of pieces, in sentencepiece_model.proto.
_NORMAL, _UNKNOWN = 1, 2
_STEP = 2.0**-14  # scores are rounded to multiples of it
# Normalizers of single characters. Decomposition also reorders marks, but only before they are removed.
_BY_CHARACTER = ("Lowercase", "StripAccents", "NFKD", "NFD", "Nmt")
_SPACE = 0x20


class Unigram(tf.Module):
    def __init__(self, backend: Tokenizer, config: dict[str, Any]) -> None:
        super().__init__(name="unigram")
        self._steps = _normalization(flat(config["normalizer"], "normalizers"))
        late = [token for token in config["added_tokens"] if token["normalized"]]
        if backend.normalizer is not None:
            late = [{**token, "content": backend.normalizer.normalize_str(token["content"])} for token in late]
        self._late = SpecialTokens(late)
        self._splits = _Words(flat(config["pre_tokenizer"], "pretokenizers"))
        model = config["model"]
        if model.get("byte_fallback"):
            raise cannot_run_in_graph("it splits unknown characters into bytes")
        if model["unk_id"] is None:
            raise cannot_run_in_graph("it has no unknown piece")
        self._pieces = tf_text.SentencepieceTokenizer(_compiled_model(model["vocab"], int(model["unk_id"])))

    def __call__(self, marked: Runs, limit: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Return int32 ids and their rows (int64, ascending): at least the first ``limit`` ids of each text."""
        runs = marked
        for step in self._steps:
            runs = step(runs)
        runs, starts = self._splits(self._late.mark(runs))
        rows = tf.gather(runs.rows, places_of(starts))
        word = tf.cumsum(tf.cast(starts, tf.int64)) - 1
        # A word has at least one token.
        keep = tf.gather(positions_in_rows(rows) < limit, word)
        words = Runs(runs.points, word).kept(keep)
        starts = starts_of(words.rows)
        number = tf.cumsum(tf.cast(starts, tf.int64)) - 1
        # A special token is an unknown word of one character for now.
        points = tf.where(words.special(), 0, words.points)
        ids, found = pieces_of(self._pieces, Runs(points, number), words.at(places_of(starts)))
        return ids, tf.gather(rows, found)


def _compiled_model(vocabulary: list[list[Any]], unknown: int) -> bytes:
    """Return a serialized SentencePiece model that segments texts without normalizing them."""
    parts = []
    for at, (piece, score) in enumerate(vocabulary):
        kind = _UNKNOWN if at == unknown else _NORMAL
        parts.append(field(1, field(1, piece) + field(2, _STEP * round(score / _STEP)) + field(3, kind)))
    parts.append(field(2, field(3, 1)))  # the model type is Unigram
    # No space is added, removed or replaced.
    parts.append(field(3, field(1, "identity") + field(3, 0) + field(4, 0) + field(5, 0)))
    return b"".join(parts)


def _normalization(configs: list[dict[str, Any]]) -> list[Step]:
    """Return the steps that normalize a text before it is split into words."""
    steps: list[Step] = []
    while configs:
        if by_character := list(takewhile(lambda config: config["type"] in _BY_CHARACTER, configs)):
            names = {config["type"] for config in by_character}
            if names & {"NFKD", "NFD"} and "StripAccents" not in names:
                raise cannot_run_in_graph("it decomposes characters and keeps the accents")
            steps.append(_character_table(json.dumps({"type": "Sequence", "normalizers": by_character})))
            configs = configs[len(by_character) :]
            continue
        config, *configs = configs
        if config["type"] == "Precompiled":
            steps.append(Charsmap(base64.b64decode(config["precompiled_charsmap"])))
        elif config["type"] == "Replace":
            steps.append(_replacement(config))
        elif config["type"] == "Strip":
            steps.append(_stripping(config))
        else:
            raise cannot_run_in_graph(f"its normalizer {config['type']} looks at several characters at once")
    return steps


@lru_cache(maxsize=4)
def _character_table(key: str) -> CharacterTable:
    normalize = tokenizer_with(normalizer=json.loads(key)).normalizer.normalize_str
    # A text is one word here, including its spaces.
    return CharacterTable(map_every_character(lambda text: [normalize(text)]))


def _replacement(config: dict[str, Any]) -> Step:
    pattern, content = config["pattern"], config["content"]
    if pattern == {"Regex": " {2,}"} and content == " ":
        return lambda runs: runs.kept(~_repeats(runs, _SPACE))
    string = pattern.get("String", "")
    if len(string) == 2 and string[0] == string[1] and len(content) == 1:
        return lambda runs: _pairs_replaced(runs, ord(string[0]), ord(content))
    raise cannot_run_in_graph(f"it replaces {pattern} by {content!r}")


def _repeats(runs: Runs, point: int) -> tf.Tensor:
    """Return a mask of the places where ``point`` follows itself in the same segment."""
    same = runs.points == point
    return same & shifted(same) & ~runs.segment_starts()


def _pairs_replaced(runs: Runs, point: int, by: int) -> Runs:
    """Replace each two consecutive ``point`` characters with one character ``by``, from left to right."""
    same = runs.points == point
    run = tf.cumsum(tf.cast(~_repeats(runs, point), tf.int64)) - 1
    second = same & (positions_in_rows(run) % 2 == 1)
    first = tf.concat([second[1:], tf.zeros_like(second[:1])], axis=0)
    return Runs(tf.where(first, by, runs.points), runs.rows).kept(~second)


def _stripping(config: dict[str, Any]) -> Step:
    left, right = config["strip_left"], config["strip_right"]

    def strip(runs: Runs) -> Runs:
        starts = tf.cast(runs.segment_starts(), tf.int64)
        segment, count = tf.cumsum(starts) - 1, tf.reduce_sum(starts)
        here = tf.range(tf.size(segment, out_type=tf.int64))
        solid = ~runs.whitespace()
        places = places_of(solid)
        owners = tf.gather(segment, places)
        first = tf.math.unsorted_segment_min(places, owners, count)
        last = tf.math.unsorted_segment_max(places, owners, count)
        keep = tf.ones_like(solid)
        if left:
            keep &= here >= tf.gather(first, segment)
        if right:
            keep &= here <= tf.gather(last, segment)
        return runs.kept(keep)

    return strip


class _Words(tf.Module):
    """Marks where words begin, as the pre-tokenizer does."""

    def __init__(self, configs: list[dict[str, Any]]) -> None:
        super().__init__(name="words")
        if not configs or configs[-1]["type"] != "Metaspace":
            raise cannot_run_in_graph("it does not mark words by the space before them")
        *others, metaspace = configs
        if metaspace["prepend_scheme"] != "always":
            raise cannot_run_in_graph(f"it marks word beginnings with the scheme {metaspace['prepend_scheme']!r}")
        self._mark = ord(metaspace["replacement"])
        self._split = bool(metaspace["split"])
        self._kinds = [config["type"] for config in others]
        for config in others:
            if config["type"] == "Punctuation" and config["behavior"] == "Isolated":
                self._punctuation = _punctuation_table()
            elif config["type"] != "WhitespaceSplit":
                raise cannot_run_in_graph(f"it splits words with {config['type']}")

    def __call__(self, runs: Runs) -> tuple[Runs, tf.Tensor]:
        """Insert the word mark before each word that lacks it; return the characters and a mask of word beginnings."""
        starts = runs.segment_starts()
        for kind in self._kinds:
            if kind == "Punctuation":
                alone = self._punctuation.kinds(runs.points) > 0
                starts |= alone | shifted(alone)
            else:
                space = runs.whitespace()
                starts |= shifted(space)
                # If a split begins with whitespace, the next character begins it; dropping both would join two words.
                inner = places_of(~space)
                starts, runs = tf.gather(starts, inner), runs.at(inner)
        points = tf.where(runs.points == _SPACE, self._mark, runs.points)
        lacking = starts & (points != self._mark) & ~runs.special()
        sizes = 1 + tf.cast(lacking, tf.int64)
        source = tf.repeat(tf.range(tf.size(sizes, out_type=tf.int64)), sizes)
        first = starts_of(source)
        marked = tf.where(first & tf.gather(lacking, source), self._mark, tf.gather(points, source))
        begins = first & tf.gather(starts, source)
        if self._split:
            begins |= marked == self._mark
        return Runs(marked, tf.gather(runs.rows, source)), begins


@lru_cache(maxsize=1)
def _punctuation_table() -> CharacterTable:
    isolated = {"type": "Punctuation", "behavior": "Isolated"}
    split = tokenizer_with(pre_tokenizer=isolated).pre_tokenizer.pre_tokenize_str
    return CharacterTable(map_every_character(lambda text: [word for word, _ in split(text)]))

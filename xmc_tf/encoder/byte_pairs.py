"""Byte-level BPE as TensorFlow ops: the words of GPT-2, Llama 3 and Qwen, and their pieces."""

from functools import lru_cache
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_text as tf_text
from tokenizers import Regex, Tokenizer, normalizers

from xmc_tf.common.protobuf import field
from xmc_tf.encoder.code_points import (
    NR_CODE_POINTS,
    SPECIAL,
    CharacterTable,
    Runs,
    SpecialTokens,
    ahead,
    cannot_run_in_graph,
    every_character,
    flat,
    pieces_of,
    places_of,
    positions_in_rows,
    rows_of,
    shifted,
    splits_of,
    starts_of,
    tokenizer_with,
)

# Kinds of characters, in the order of their first characters in Unicode, as `CharacterTable` counts them. Any other
# character, such as punctuation or a combining mark, is of the kind 0.
_WHITESPACE, _NUMBER, _LETTER = 1, 2, 3
_CLASSES = {_WHITESPACE: r"\s", _NUMBER: r"\p{N}", _LETTER: r"\p{L}"}
_SPACE, _NEWLINES, _APOSTROPHE = 0x20, (0x0A, 0x0D), 0x27
# What follows an apostrophe in a contraction.
_ENDINGS = ("s", "t", "m", "d"), ("re", "ve", "ll")
# Types of pieces, in sentencepiece_model.proto.
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3
# The characters that stand for bytes: printable bytes for themselves, the others for those from 256 on.
_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}


class _Splitting(NamedTuple):
    """The rules by which a pattern splits texts into words."""

    digits: int = 0  # in a word of digits; 0: any number
    # Whether words of letters may begin with any one character that is no letter, digit or newline, newlines follow
    # punctuation or end a word, and contractions may have capitals. Else words may begin with a space alone.
    modern: bool = False


_MODERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_SPLITTINGS = {
    r"\p{N}{1,3}".join(_MODERN): _Splitting(3, modern=True),  # of Llama 3
    r"\p{N}".join(_MODERN): _Splitting(1, modern=True),  # of Qwen2 and Qwen3
}


class BytePairs(tf.Module):
    """A byte-level BPE, whose merges SentencePiece finds: it joins two pieces whose text is a piece, the best first."""

    # SentencePiece knows tokens, but not from which two pieces each is made. That makes no difference: within a token,
    # the merges are those of its text alone, so a token is always made from the same two.

    def __init__(self, backend: Tokenizer, config: dict[str, Any]) -> None:
        super().__init__(name="byte_pairs")
        normalizer, model = flat(config["normalizer"], "normalizers"), config["model"]
        for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
            if model.get(option):
                raise cannot_run_in_graph(f"it has the option {option}")
        if any(one["type"] != "NFC" for one in normalizer):
            raise cannot_run_in_graph(f"its normalizer is {normalizer[0]['type']}, not NFC")
        self._composes = bool(normalizer)
        if any(token["normalized"] for token in config["added_tokens"]) and self._composes:
            raise cannot_run_in_graph("it has added tokens that are found after normalisation")
        self._late = SpecialTokens([token for token in config["added_tokens"] if token["normalized"]])
        self._splitting = _splitting(flat(config["pre_tokenizer"], "pretokenizers"))
        self._kinds = _table_of_kinds()
        others = iter(range(256, 512))
        self._characters = [byte if byte in _PRINTABLE else next(others) for byte in range(256)]
        if missing := [one for one in map(chr, self._characters) if one not in model["vocab"]]:
            raise cannot_run_in_graph(f"its vocabulary lacks {len(missing)} of the 256 bytes")
        compiled, whole = _compiled_model(model)
        self._pieces = tf_text.SentencepieceTokenizer(compiled)
        self._whole: Any = None
        if whole:  # tokens that only a whole word becomes, because no merges lead to them
            entries = tf.lookup.KeyValueTensorInitializer([*whole], [*whole.values()], tf.string, tf.int32)
            self._whole = tf.lookup.StaticHashTable(entries, -1)

    def __call__(self, marked: Runs, limit: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Return int32 ids and their rows (int64, ascending): at least the first ``limit`` ids of each text."""
        runs = self._late.mark(_composed(marked) if self._composes else marked)
        starts = self._word_starts(runs)
        heads = runs.at(places_of(starts))
        word = tf.cumsum(tf.cast(starts, tf.int64)) - 1
        # A word has at least one token.
        keep = positions_in_rows(heads.rows) < limit
        heads, kept = heads.kept(keep), Runs(runs.points, word).kept(tf.gather(keep, word))
        number = tf.cumsum(tf.cast(starts_of(kept.rows), tf.int64)) - 1
        # A special token is a word of one byte for now.
        words = self._bytes(Runs(tf.where(kept.special(), 0, kept.points), number))
        if self._whole is not None:
            words, heads = self._without_whole(words, heads)
        return pieces_of(self._pieces, words, heads)

    def _without_whole(self, words: Runs, heads: Runs) -> tuple[Runs, Runs]:
        """Treat the words that are tokens as a whole like special tokens."""
        splits = splits_of(words.rows, tf.size(heads.rows, out_type=tf.int64))
        ragged = tf.RaggedTensor.from_row_splits(words.points, splits, validate=False)
        found = self._whole.lookup(tf.strings.unicode_encode(ragged, "UTF-8"))
        whole = (found >= 0) & ~heads.special()
        words = words.kept(starts_of(words.rows) | ~tf.gather(whole, words.rows))
        return words, Runs(tf.where(whole, SPECIAL + found, heads.points), heads.rows)

    def _bytes(self, runs: Runs) -> Runs:
        """Return the characters that stand for the bytes of texts in UTF-8."""
        points = runs.points
        sizes = 1 + tf.add_n([tf.cast(points >= limit, tf.int32) for limit in (0x80, 0x800, 0x10000)])
        source = tf.repeat(tf.range(tf.size(sizes)), sizes)
        size, place = tf.gather(sizes, source), tf.cast(positions_in_rows(source), tf.int32)
        bits = tf.bitwise.right_shift(tf.gather(points, source), 6 * (size - 1 - place))
        first = bits + tf.gather(tf.constant([0, 0, 0xC0, 0xE0, 0xF0]), size)
        byte = tf.where(place == 0, first, 0x80 + bits % 64)
        return Runs(tf.gather(tf.constant(self._characters), byte), tf.gather(runs.rows, source))

    def _word_starts(self, runs: Runs) -> tf.Tensor:
        """Return a mask of the characters at which words begin."""
        splitting, points, bounds = self._splitting, runs.points, runs.segment_starts()
        kind = self._kinds.kinds(points)
        kind_before = tf.where(bounds, -1, tf.concat([[-1], kind], axis=0)[:-1])
        before = tf.where(bounds, -1, tf.concat([[-1], points], axis=0)[:-1])
        first = bounds | (kind != kind_before)  # of a run of characters of one kind
        spaced = before == _SPACE
        white, number, letter = (kind == one for one in _CLASSES)
        two, three = self._contractions(runs, bounds)
        two, three = (found & first & ~spaced for found in (two, three))
        inside = shifted(two | three) | shifted(three, 2)
        starts = (first & ~inside) | shifted(two, 2) | shifted(three, 3)
        run = tf.cumsum(tf.cast(first, tf.int64)) - 1
        if splitting.digits:
            starts |= number & (positions_in_rows(run) % splitting.digits == 0)
        joined = spaced & first & ~white
        newline = tf.zeros_like(first)
        if splitting.modern:
            newline = tf.reduce_any(points[:, None] == tf.constant(_NEWLINES), axis=1)
            # A single character of another kind, not after a space, belongs to the letters behind it.
            alone = (kind_before == 0) & shifted(first & ~spaced) & ~inside
            of_letters = letter & first & (alone | ((kind_before == _WHITESPACE) & ~shifted(newline)))
            joined = of_letters | (joined & ~letter & ~number)
        starts &= ~joined
        return self._white_starts(starts, Runs(points, run), first, bounds, white, newline, kind_before == 0)

    def _white_starts(
        self, starts: tf.Tensor, runs: Runs, first: tf.Tensor, bounds: tf.Tensor, white: tf.Tensor, newline: tf.Tensor,
        after_others: tf.Tensor,
    ) -> tf.Tensor:  # fmt: skip
        """Add the beginnings of words within whitespace. ``runs`` has the number of the run as row."""
        run, here = runs.rows, tf.range(tf.size(runs.points, out_type=tf.int64))
        begin = tf.gather(places_of(first), run)
        # Newlines directly after punctuation belong to it.
        others = tf.cumsum(tf.cast(~newline, tf.int64), exclusive=True)
        taken = newline & tf.gather(after_others, begin) & (others == tf.gather(others, begin))
        starts = (starts & ~taken) | (white & ~taken & shifted(taken))
        # The rest is one word up to the last newline, then one up to the last character, then this character, unless
        # the text ends with it.
        last_newline = tf.math.segment_max(tf.where(newline & ~taken, here, -1), run)
        tail = white & ~taken & (here > tf.gather(last_newline, run))
        ends = tf.concat([first[1:] & ~bounds[1:], tf.zeros_like(first[:1])], axis=0)
        return starts | (tail & (ends | shifted(newline & ~taken)))

    def _contractions(self, runs: Runs, bounds: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return masks of the apostrophes that begin contractions of two and of three characters."""
        segment = tf.cumsum(tf.cast(bounds, tf.int64)) - 1
        apostrophe, second, third = ahead(Runs(runs.points, segment), 3)
        here = apostrophe == _APOSTROPHE

        def same(points: tf.Tensor, letter: str) -> tf.Tensor:
            forms = [letter]
            if self._splitting.modern:  # ſ is a form of s
                forms += [letter.upper(), *("\u017f" if letter == "s" else "")]
            return tf.reduce_any(points[:, None] == tf.constant([ord(form) for form in forms]), axis=1)

        short, long = _ENDINGS
        two = tf.reduce_any([same(second, letter) for letter in short], axis=0)
        three = tf.reduce_any([same(second, pair[0]) & same(third, pair[1]) for pair in long], axis=0)
        return here & two, here & three


def _splitting(steps: list[dict[str, Any]]) -> _Splitting:
    *others, last = steps or [{"type": None}]
    if last["type"] != "ByteLevel" or last["add_prefix_space"]:
        raise cannot_run_in_graph("it is no byte-level BPE without a space before each text")
    if not others and last["use_regex"]:
        return _Splitting()
    pattern = others[0].get("pattern", {}).get("Regex") if len(others) == 1 else None
    if last["use_regex"] or pattern not in _SPLITTINGS or others[0]["behavior"] != "Isolated" or others[0]["invert"]:
        raise cannot_run_in_graph("it splits words by a pattern that is neither GPT-2's, Llama 3's nor Qwen's")
    return _SPLITTINGS[pattern]


def _compiled_model(model: dict[str, Any]) -> tuple[bytes, dict[str, int]]:
    """Return a serialized SentencePiece model of type BPE, and the tokens that only whole words become."""
    vocabulary: dict[str, int] = model["vocab"]
    ranks: dict[str, int] = {}
    for rank, (one, other) in enumerate(model["merges"]):
        ranks.setdefault(one + other, rank)
    alone = tokenizer_with(model={**model, "ignore_merges": False})
    found = alone.encode_batch([*vocabulary], add_special_tokens=False)
    reached = {token for token, one in zip(vocabulary, found, strict=True) if one.ids == [vocabulary[token]]}
    whole = {token: number for token, number in vocabulary.items() if token not in reached}
    parts, names = [], {number: token for token, number in vocabulary.items()}
    for number in range(max(names) + 1):
        token = names.get(number, "")
        kind = _NORMAL if token in reached and (token in ranks or len(token) == 1) else _CONTROL
        # A piece needs a name that no other piece has.
        name = token if kind == _NORMAL else f"\ue000{number}"
        parts.append(field(1, field(1, name) + field(2, float(-ranks.get(token, 0))) + field(3, kind)))
    parts.append(field(1, field(1, "\ue000") + field(2, 0.0) + field(3, _UNKNOWN)))
    parts.append(field(2, field(3, 2)))  # the model type is BPE
    # No space is added, removed or replaced.
    parts.append(field(3, field(1, "identity") + field(3, 0) + field(4, 0) + field(5, 0)))
    return b"".join(parts), whole if model.get("ignore_merges") else {}


def _composed(runs: Runs) -> Runs:
    """Return the texts in Unicode's normal form NFC; special tokens separate them."""
    starts = runs.segment_starts()
    heads, segment = runs.at(places_of(starts)), tf.cumsum(tf.cast(starts, tf.int64)) - 1
    points = tf.where(runs.special(), 0, runs.points)
    splits = splits_of(segment, tf.size(heads.rows, out_type=tf.int64))
    texts = tf.strings.unicode_encode(tf.RaggedTensor.from_row_splits(points, splits, validate=False), "UTF-8")
    found = tf.strings.unicode_decode(tf_text.normalize_utf8(texts, "NFC"), "UTF-8")
    head = heads.at(rows_of(found.row_splits))
    return Runs(tf.where(head.special(), head.points, found.values), head.rows)


@lru_cache(maxsize=1)
def _table_of_kinds() -> CharacterTable:
    """Return a table whose numbers of replacements are the kinds of characters, as the tokenizers library sees them."""
    characters = every_character()
    text = "".join(characters)
    outputs: list[str | None] = [None] * NR_CODE_POINTS
    for kind, pattern in _CLASSES.items():
        replaced = normalizers.Replace(Regex(pattern), "\0").normalize_str(text)
        for character, found in zip(characters, replaced, strict=True):
            if found == "\0" != character:
                outputs[ord(character)] = str(kind)
    return CharacterTable(outputs)

"""The most likely pieces of words, by SentencePiece's op with a model made from tokenizer.json.

SentencePiece sums scores in float32, the tokenizers library in float64; both break ties by the longest last piece. With
scores that are multiples of 2^-14, sums down to -1024 are exact, so that both see the same ties. Only in words of many
more than 40 unknown characters can a run of equal characters be cut at another place.
"""

import struct
from typing import Any

import tensorflow as tf
import tensorflow_text as tf_text

from xmc_tf.encoder.code_points import SPECIAL, Runs, at_places, encode, places_of, rows_of, starts_of
from xmc_tf.encoder.special_tokens import cannot_run_in_graph, is_special

# Types of pieces, in sentencepiece_model.proto.
_NORMAL, _UNKNOWN = 1, 2
_STEP = 2.0**-14  # of scores


class LikeliestPieces(tf.Module):
    """The segmentation of words by the sum of their pieces' scores.

    Args:
        model: the entry "model" of tokenizer.json.
    """

    def __init__(self, model: dict[str, Any]) -> None:
        super().__init__(name="pieces")
        if model.get("byte_fallback"):
            raise cannot_run_in_graph("it makes bytes of unknown characters")
        if model["unk_id"] is None:
            raise cannot_run_in_graph("it has no unknown piece")
        self._tokenizer = tf_text.SentencepieceTokenizer(compiled_model(model["vocab"], int(model["unk_id"])))

    def __call__(self, runs: Runs) -> tuple[tf.Tensor, tf.Tensor]:
        """Segment words.

        Args:
            runs: the words, with their numbers as rows, ascending from 0. A special token is a word.

        Returns:
            int32 ids of the pieces and the int64 word of each piece, ascending.
        """
        starts = starts_of(runs.rows)
        heads = at_places(runs, places_of(starts))
        word = tf.cumsum(tf.cast(starts, tf.int64)) - 1
        # A special token is an unknown word of one character for now.
        points = tf.where(is_special(runs.points), 0, runs.points)
        pieces = self._tokenizer.tokenize(encode(Runs(points, word), tf.size(heads.rows, out_type=tf.int64)))
        head = at_places(heads, rows_of(pieces.row_splits))
        return tf.where(is_special(head.points), head.points - SPECIAL, pieces.values), head.rows


def compiled_model(vocabulary: list[list[Any]], unknown: int) -> bytes:
    """Return a model of SentencePiece, as a protocol buffer, that leaves texts as they are before it cuts them.

    Args:
        vocabulary: each piece and its score, in the order of their ids.
        unknown: the id of the unknown piece.
    """
    pieces = b"".join(
        _bytes(
            1,
            _bytes(1, piece.encode())
            + _float(2, _STEP * round(score / _STEP))
            + _number(3, _UNKNOWN if at == unknown else _NORMAL),
        )
        for at, (piece, score) in enumerate(vocabulary)
    )
    trainer = _bytes(2, _number(3, 1))  # the model type is Unigram
    # No space is added, removed or replaced.
    normalizer = _bytes(3, _bytes(1, b"identity") + _number(3, 0) + _number(4, 0) + _number(5, 0))
    return pieces + trainer + normalizer


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))

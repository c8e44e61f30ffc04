"""Write the table of characters that compiled TF-IDF reads, as TensorFlow's operations see each character.

    python -m tools.character_table           # write xmc_tf/features/characters.npy
    python -m tools.character_table --check   # compare only

Run it after a change of TensorFlow's version. A table that differs changes the features of existing models.
"""

import argparse
import io
import sys

import numpy as np
import tensorflow as tf

from xmc_tf.features.characters import CASED, DOTTED_CAPITAL_I, IGNORABLE, IN_WORD, NR_CHARACTERS, RUNS_FILE
from xmc_tf.features.graph.words import lowered, split_words


def main() -> None:
    """Write or compare the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the file; write nothing")
    check = parser.parse_args().check
    table = packed(runs())
    if check:
        same = RUNS_FILE.read_bytes() == table
        print(f"{RUNS_FILE}: {'up to date' if same else 'differs from TensorFlow'}")
        sys.exit(0 if same else 1)
    RUNS_FILE.write_bytes(table)
    print(f"{RUNS_FILE}: {len(table):,} bytes")


def runs() -> np.ndarray:
    """Return int32 [3, runs]: the first character of each run, the distance to the lower case, and the kind."""
    codes = np.array([code for code in range(1, NR_CHARACTERS) if not 0xD800 <= code < 0xE000])
    lower = np.array([ord(text[0]) for text in _lower(codes, "{}")])  # a dotted I has two, and is a special case
    words = np.diff(split_words(_texts(codes, "{}"), False, 1)[1].numpy()) > 0
    # A sigma between two letters is not final. Where the second follows only after the character, it is ignorable.
    cased = np.array([text[1] == "σ" for text in _lower(codes, "AΣ{}")])
    between = np.array([text[1] == "σ" for text in _lower(codes, "AΣ{}A")])
    entries = np.zeros((2, NR_CHARACTERS), np.int32)
    entries[0, codes] = np.where(codes == DOTTED_CAPITAL_I, 0, lower - codes)
    bits = IN_WORD * words + CASED * cased + IGNORABLE * (between & ~cased)
    entries[1, codes] = bits >> 24
    # NUL and the halves of surrogate pairs, which no text contains, are in no word.
    starts = np.flatnonzero(np.append(True, (entries[:, 1:] != entries[:, :-1]).any(axis=0)))
    return np.vstack([starts.astype(np.int32), entries[:, starts]])


def packed(array: np.ndarray) -> bytes:
    """Return the bytes of a ``.npy`` file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _texts(codes: np.ndarray, form: str) -> tf.Tensor:
    return tf.constant([form.format(chr(code)).encode() for code in codes])


def _lower(codes: np.ndarray, form: str) -> list[str]:
    return [text.decode() for text in lowered(_texts(codes, form)).numpy()]


if __name__ == "__main__":
    main()

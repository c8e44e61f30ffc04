"""Write the table of characters by which names of labels are found in texts, from the Unicode data of Python 3.11.

    python -m tools.name_characters           # write xmc_tf/label_names/characters.npy
    python -m tools.name_characters --check   # compare only

The file is shipped, because each Python has the data of another version of Unicode: 14.0 in Python 3.11, 15.1 in 3.13.
A model keeps the table that it was trained with.
"""

import argparse
import io
import sys
import unicodedata

import numpy as np

from xmc_tf.label_names.characters import APART, BESIDE, DROPPED, LETTER, NR_CHARACTERS, RUNS_FILE

UNICODE = "14.0.0"  # that of Python 3.11
_JOINERS = (0xAD, 0x200C, 0x200D)  # soft hyphen, zero-width joiners


def main() -> None:
    """Write or compare the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the file; write nothing")
    check = parser.parse_args().check
    if unicodedata.unidata_version != UNICODE:
        parser.error(f"expected a Python with Unicode {UNICODE}, as 3.11; this one has {unicodedata.unidata_version}")
    buffer = io.BytesIO()
    np.save(buffer, runs(), allow_pickle=False)
    if check:
        same = RUNS_FILE.read_bytes() == buffer.getvalue()
        print(f"{RUNS_FILE}: {'up to date' if same else 'differs from Unicode ' + UNICODE}")
        sys.exit(0 if same else 1)
    RUNS_FILE.write_bytes(buffer.getvalue())
    print(f"{RUNS_FILE}: {len(buffer.getvalue()):,} bytes")


def runs() -> np.ndarray:
    """Return int32 [3, runs]: the first character of each run, the distance to the base character, and the kind."""
    entries = np.array([entry(code) for code in range(NR_CHARACTERS)], np.int32).T
    starts = np.flatnonzero(np.append(True, (entries[:, 1:] != entries[:, :-1]).any(axis=0)))
    return np.vstack([starts.astype(np.int32), entries[:, starts]])


def entry(code: int) -> tuple[int, int]:
    """Return the distance of a character to its base character in lower case, and its kind."""
    category = unicodedata.category(chr(code))
    if category[0] in "LN":
        return _base(code) - code, LETTER if category[0] == "L" else BESIDE
    if category in ("Mn", "Me") or code in _JOINERS:
        return 0, DROPPED
    return 0, BESIDE if category == "Mc" else APART  # vowel signs of Indic scripts are a part of the word


def _base(code: int) -> int:
    """Return a letter's or digit's base character in lower case, if it has a single one; else the first of several."""
    folded = unicodedata.normalize("NFKD", chr(code).casefold())
    bases = [one for one in folded if unicodedata.category(one)[0] in "LN"]
    if not bases or 0xAC00 <= code <= 0xD7A3:  # a Hangul syllable is a character, not a row of letters
        return code
    return ord(bases[0])


if __name__ == "__main__":
    main()

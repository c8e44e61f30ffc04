"""Texts for the tests of TF-IDF, and what words they hold by Python's own rules."""

import re
import unicodedata

import numpy as np
from hypothesis import strategies as st

# What hides in real text files. TensorFlow, like Python, is to take each as it comes.
HARD: list[bytes] = [
    b"",
    b" \t ... !?",
    "Smörgåsbord ÅNGSTRÖM Straße ΟΔΥΣΣΕΥΣ İstanbul DIŞ Ìn Íl".encode(),
    "naïve cafe\u0301 re\u0301sume\u0301 \u0130\u0307x I\u0307y".encode(),
    "图书馆 情報学 도서관 ห้องสมุด मानविकी".encode(),
    "emoji 👩🏽‍🔬 in🙂side flags🇫🇮 end".encode(),
    "x² ½cup Ⅷ ٣٤ snake_case __init__ a1 1a a b".encode(),
    b"bro\xffken \xc3 \xe2\x82 euro\xed\xa0\x80half \xf0\x9f\x98 \xc0\xaf \xf8\x88\x80\x80\x80 tail",
    b"nul\x00byte \x00\x00 after\x00",
    "\ufeffmark no\u00a0break zero\u200bwidth soft\u00adhyphen".encode(),
    b"x" * 70_000,
]


def python_words(text: bytes, lowercase: bool = True, min_length: int = 2) -> list[str]:
    """Return the words as scikit-learn's default analyzer finds them, for any shortest word."""
    decoded = text.decode("utf-8", "replace")
    words = re.findall(r"\w+", decoded.lower() if lowercase else decoded)
    return [word for word in words if len(word) >= min_length]


def in_all_versions(character: str) -> bool:
    """Return whether a character is older than the Unicode tables of Python and TensorFlow, whose versions differ."""
    return unicodedata.ucd_3_2_0.category(character) not in ("Cn", "Co", "Cs")


unicode_texts = st.text(st.characters(exclude_categories=["Cs"]).filter(in_all_versions), max_size=60)


def random_corpus(documents: int, seed: int, words: int = 300, length: int = 25) -> list[str]:
    """Return documents whose words are as unevenly frequent as real ones."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, words + 1)
    names = np.array([f"w{i}" if i % 7 else f"Ö{i}É" for i in range(words)])
    sizes = rng.integers(0, 2 * length, documents)
    return [" ".join(rng.choice(names, size, p=share / share.sum())) for size in sizes]

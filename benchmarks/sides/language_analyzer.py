"""Texts as an analyzer of Annif returns them: ``language_analyzer.py ANALYZER DATA OUT``.

Run by a Python that has Annif.
Writes the words of each text, separated by spaces, to OUT/X.trn.txt and OUT/X.tst.txt, and prints one JSON line.
"""

import json
import sys
import time
from pathlib import Path


def main():
    from annif.analyzer import get_analyzer

    analyzer, data, out = get_analyzer(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    start = time.perf_counter()
    for part in ("trn", "tst"):
        texts = (data / f"X.{part}.txt").read_text("utf-8").removesuffix("\n").split("\n")
        lines = [" ".join(analyzer.tokenize_words(text)) + "\n" for text in texts]
        (out / f"X.{part}.txt").write_text("".join(lines), "utf-8")
    print(json.dumps({"analyzer_s": round(time.perf_counter() - start, 2)}))


if __name__ == "__main__":
    main()

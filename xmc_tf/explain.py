"""``python -m xmc_tf.explain``: show why a text gets its labels."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from xmc_tf.common.compiled import announce_compiling
from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import whole
from xmc_tf.common.process import cli
from xmc_tf.models.loading import load
from xmc_tf.params import add_flags, add_prediction_options

_MOST_BYTES = 16 << 20

_DESCRIPTION = """Show why a text gets its labels: the words and the path through the label tree.

    python -m xmc_tf.explain -m model "gradient of a sparse matrix"
    python -m xmc_tf.explain -m model -k 3 --words 20 - < document.txt

For each label, the nodes on the path to it are listed from the top, each with its score. Below a node are the terms
that its ranker adds up: weight × value of each word of the text, the embedding (in an XR-Transformer), and the bias.
The post-processor (-pp in training) turns the sum into a score, which is combined with the score of the node above."""


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser("xmc_tf.explain", _DESCRIPTION)
    out.add_argument("text", nargs="?", metavar="TEXT", help="the document; -: standard input")
    out.add_argument("-q", "--query", metavar="TEXT", help="the document, as an alternative to TEXT")
    add_flags(out, model_folder={"required": True})
    add = out.add_argument
    add("-k", "--only-topk", type=whole, default=3, metavar="INT", help="number of labels")
    add_prediction_options(out, "beam_size")
    add("--words", type=whole, default=8, metavar="INT", help="number of words shown for each label")
    add_flags(out, "runtime")
    add("--json", action="store_true", help="print one JSON object with all words")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    announce_compiling()
    for flag, value in (("-k", arguments.only_topk), ("-b", arguments.beam_size), ("--words", arguments.words)):
        if value is not None and value < 1:
            raise InputError(f"{flag} is out of range", expected="a whole number of at least 1", received=str(value))
    given = [text for text in (arguments.text, arguments.query) if text is not None]
    if len(given) != 1:
        raise InputError(
            "both TEXT and -q are given" if given else "the text is missing", expected="one text",
            fix="leave one of them out" if given else '-q "a text"',
        )  # fmt: skip
    text = given[0]
    if text == "-":
        content = sys.stdin.buffer.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise InputError("standard input is too long", expected=f"a text of at most {_MOST_BYTES >> 20} MB")
        text = content.decode("utf-8", errors="replace")
    model = load(Path(arguments.model_folder), runtime=arguments.runtime)
    found = model.explain(text, arguments.only_topk, beam_size=arguments.beam_size)
    print(json.dumps(found.to_json()) if arguments.json else found.to_text(arguments.words))


if __name__ == "__main__":
    cli.run(main)

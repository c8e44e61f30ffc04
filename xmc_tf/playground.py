"""``python -m xmc_tf.playground``: a local web page for trying a model."""

import argparse
import logging
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json
from xmc_tf.common.numbers import whole
from xmc_tf.common.process import cli
from xmc_tf.params import add_flags, add_model_place, model_place
from xmc_tf.server.connections import BACKLOG, address_of, bound_socket, require_server, serve
from xmc_tf.server.page.answering import Answering, ExplainedAnswers, NextItemAnswers, PageAnswers
from xmc_tf.server.page.routes import page_application

_LOG = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser(
        "xmc_tf.playground",
        "Serve a local page to try a model: enter a text, and see its labels with their scores, their paths\n"
        "through the label tree, and, for the folder of a model, the words that led to them.",
    )
    add_model_place(
        out,
        "folder of a model, which also explains its labels by the words of the text; folder of a sequence model, "
        "which predicts the next items of a history; or an export: served/1, or served for the highest version",
    )
    out.add_argument("-p", "--port", type=whole, default=8765, metavar="INT", help="port; 0: any free port")
    add_flags(out, "runtime")
    out.add_argument("--open", action="store_true", help="open the page in a browser")
    return out


def answers_of(folder: str, runtime: str = "auto") -> PageAnswers:
    """Return the object that answers the page's requests, for a model, a sequence model or an export."""
    header = Path(folder) / "params.json"
    if (
        header.is_file()
        and str(read_json(header, fix="copy the model again").get("format")) == "xmc_tf.sequences.model"
    ):
        return NextItemAnswers(folder)
    is_model = any((Path(folder) / name).is_file() for name in ("params.json", "param.json"))
    return ExplainedAnswers(folder, runtime) if is_model else Answering(folder)


def main(argv: Sequence[str] | None = None) -> None:
    """Serve the page until Ctrl-C is pressed."""
    arguments = parser().parse_args(argv)
    require_server()
    place = model_place(arguments)
    if not Path(place).exists():
        raise InputError(f"{place} does not exist", expected="the folder of a model, or an export")
    answers = answers_of(place, arguments.runtime)
    bound = bound_socket("127.0.0.1", arguments.port)
    try:
        answers.model()
    except InputError as error:  # the page shows the error too, with a button to retry
        _LOG.warning("%s", error)
    bound.listen(BACKLOG)
    print(f"{address_of(bound)}/   (press Ctrl-C to stop)", flush=True)
    if arguments.open:
        webbrowser.open(f"{address_of(bound)}/")
    serve(page_application(answers), bound)


if __name__ == "__main__":
    cli.run(main)

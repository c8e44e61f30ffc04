"""``python -m xmc_tf.playground``: a local page to try an exported model."""

import argparse
import logging
import webbrowser
from collections.abc import Sequence

from xmc_tf.common import cli
from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import whole
from xmc_tf.playground.answering import Answering
from xmc_tf.playground.server import PageServer

_LOG = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = argparse.ArgumentParser(
        prog="python -m xmc_tf.playground",
        description="Serves a local page: text in, labels with scores out, and for each the way through the tree.",
        formatter_class=cli.HelpFormatter,
    )
    out.add_argument(
        "model", metavar="MODEL", help="what xmc_tf.export wrote: served/1, or served for the last version"
    )
    out.add_argument("-p", "--port", type=whole, default=8765, metavar="INT", help="0 for any that is free")
    out.add_argument("--open", action="store_true", help="open the page in the browser")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """Serves until it is stopped by Ctrl-C."""
    arguments = parser().parse_args(argv)
    answering = Answering(arguments.model)
    try:
        answering.model()
    except InputError as error:  # the page says so too, and tries again when it is asked to
        _LOG.warning("%s", error)
    try:
        server = PageServer(answering, arguments.port)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"port {arguments.port} cannot be used: {error}", fix="give another one: --port 0 takes any that is free"
        ) from None
    print(f"{server.url}   (Ctrl-C ends it)", flush=True)
    if arguments.open:
        webbrowser.open(server.url)
    with server:
        server.serve_forever()


if __name__ == "__main__":
    cli.run(main)

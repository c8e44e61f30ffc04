"""``python -m xmc_tf.encode``: embed texts with the encoder of a model, on one rank or many."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.process import cli
from xmc_tf.data import TextFile, embedding_path, save_matrix
from xmc_tf.models.results import share_of
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.params import MatcherPredParams, add_flags, add_without_effect, warn_without_effect
from xmc_tf.params.choices import TENSORFLOW
from xmc_tf.pipeline.devices import choose_device
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.store.outputs import EMBEDDINGS, check_output_path

_LOG = logging.getLogger(__name__)
_DESCRIPTION = """Embed texts with the encoder of a model of xmc_tf.train. Embeddings have length 1.

    python -m xmc_tf.encode -m model -t X.tst.txt -o X.emb.npy
On several ranks, each writes the embeddings of its range of the texts: X.emb.0.npy, X.emb.1.npy, ...
    horovodrun -np 4 python -m xmc_tf.encode -m model -t X.tst.txt -o embeddings"""


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser("xmc_tf.encode", _DESCRIPTION, usage="%(prog)s -m MODEL -t TEXTS -o OUTPUT [options]")
    add_flags(out, model_folder={"required": True})
    add_flags(out, text_path={"required": True})
    output = out.add_mutually_exclusive_group(required=True)
    output.add_argument(
        "-o", "--save-emb-path", metavar="PATH",
        help="output: on one rank an .npy file, or an existing folder for embeddings.npy; on several ranks a folder",
    )  # fmt: skip
    output.add_argument(
        "--save-emb-folder", metavar="DIR", help="output folder for X.emb.0.npy, X.emb.1.npy, ..., also on one rank"
    )
    add_flags(out, "batch_size")
    add_flags(out, of=MatcherPredParams, truncate_length={"default": None, "default_text": "as trained"})
    add_flags(out, "use_gpu", "force", "runtime", "verbose_level")
    add_without_effect(out, "encode")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """Embed this rank's share of the texts, and save the embeddings."""
    arguments = parser().parse_args(argv)
    communicator = choose_communicator()
    # Rank 0 logs for all ranks.
    cli.set_verbosity(arguments.verbose_level if communicator.rank == 0 else 0)
    if communicator.rank == 0:
        warn_without_effect(arguments, "encode")
    if arguments.batch_size < 1:
        raise InputError("--batch-size must be at least 1", received=str(arguments.batch_size))
    folder = arguments.save_emb_folder or (arguments.save_emb_path if communicator.size > 1 else None)
    path = Path(folder) / f"X.emb.{communicator.rank}.npy" if folder else embedding_path(arguments.save_emb_path)
    inputs = {"-m": arguments.model_folder, "-t": arguments.text_path}
    flag = "--save-emb-folder" if arguments.save_emb_folder else "-o"
    run_on_all_ranks(communicator, lambda: check_output_path(flag, path, inputs, [EMBEDDINGS], force=arguments.force))

    def encode() -> None:
        model = XTransformer.load(arguments.model_folder, runtime=arguments.runtime)
        if model.runtime == TENSORFLOW:
            choose_device(communicator, arguments.use_gpu)
        length = model.metadata.truncate_length if arguments.truncate_length is None else arguments.truncate_length
        texts = TextFile(arguments.text_path)
        mine = share_of(len(texts), communicator)
        tokens = arguments.batch_size * length
        own = texts[mine] if communicator.size > 1 else texts
        vectors = model.encode(own, batch_tokens=tokens, truncate_length=length)
        save_matrix(path, vectors, any_name=True, mark=EMBEDDINGS)
        _LOG.info("%s: %s embeddings with %s columns", path, f"{vectors.shape[0]:,}", vectors.shape[1])

    run_on_all_ranks(communicator, encode)


if __name__ == "__main__":
    cli.run(main)

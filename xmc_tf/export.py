"""``python -m xmc_tf.export``: export a model as a SavedModel for TensorFlow Serving."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.outputs import refuse_model_folder
from xmc_tf.common.folders.export_folder import EXPORT
from xmc_tf.common.folders.model_kind import FINE_TUNED
from xmc_tf.common.folders.placing import claimed_folder
from xmc_tf.common.numbers import whole
from xmc_tf.common.process import cli
from xmc_tf.data import TextFile, check_pair, check_validation_input, load_matrix
from xmc_tf.models.folder import kind_of
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import add_answers, add_decisions, add_model, add_verbosity

_LOG = logging.getLogger(__name__)
_PRECISIONS = ("fp32", "fp16", "int8")
_DESCRIPTION = """Export a model as a SavedModel, from raw text to label names, of standard TensorFlow operations.

    python -m xmc_tf.export -m model -o served/1
    python -m xmc_tf.export -m model -o served/2 -k 10 -b 20 --weights int8 -t X.tst.txt -y Y.tst.npz

The last part of -o is the version: TensorFlow Serving serves the highest version in served/. Try the export with
python -m xmc_tf.playground served; docs/how-to/serving.md shows how to serve it."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    out = cli.make_parser("xmc_tf.export", _DESCRIPTION, usage="%(prog)s -m MODEL -o DIR/VERSION [options]")
    add = out.add_argument
    add_model(out, required=True)
    add("-o", "--output", required=True, metavar="DIR", help="output folder; its last part is the version, such as 1")
    add_answers(out)
    add_decisions(out)
    add(
        "--weights",
        choices=_PRECISIONS,
        default="fp32",
        help="number format of the rankers' weights; fp16 and int8 make a smaller, less exact model",
    )
    add("-t", "--text-path", metavar="FILE", help="texts, one per line, for warm-up requests")
    add(
        "-y",
        "--label-path",
        metavar="FILE",
        help="labels of the texts; prints the precision of the model and of the export",
    )
    add("--warmup", type=whole, default=64, metavar="INT", help="number of warm-up requests")
    add_verbosity(out)
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """Export the model, and measure it if labels are given."""
    arguments = parser().parse_args(argv)
    cli.set_verbosity(arguments.verbose_level)
    output = Path(arguments.output)
    if not output.name.isdigit():
        raise InputError(
            f"-o {arguments.output}: the last part must be the version, a number",
            expected="a name such as served/1",
            received=output.name,
        )
    inputs = {"-m": arguments.model_folder, "-t": arguments.text_path, "-y": arguments.label_path}
    refuse_model_folder("-o", output, inputs, export=True)
    with claimed_folder(output, EXPORT, fix="give another folder with -o, such as served/1"):
        _export(arguments, output)


def _export(arguments: argparse.Namespace, output: Path) -> None:
    texts: Any = None
    if arguments.text_path:
        texts = TextFile(arguments.text_path)
        texts.check()
    if arguments.label_path and texts is None:
        raise InputError("-y needs the texts of these labels", expected="-t and -y together")

    from xmc_tf.serving.export import ExportSettings, Warmup, export_model
    from xmc_tf.serving.warmup import WARMUP, check_warmup

    # Everything that can be refused is refused here, before the export takes its place.
    settings = ExportSettings(
        only_topk=arguments.only_topk,
        beam_size=arguments.beam_size,
        post_processor=arguments.post_processor,
        threshold=arguments.threshold,
        precision=arguments.weights,
        scores=arguments.scores,
        min_precision=arguments.min_precision,
    )
    warmup = None
    if texts is not None and arguments.warmup:
        warmup = Warmup(texts, arguments.warmup)
        check_warmup(*warmup)
    model, parts = _load(arguments.model_folder)
    if texts is not None and not parts.reads_text:
        raise InputError(
            f"{arguments.model_folder}: this model was trained on features and cannot read texts",
            received=f"-t {arguments.text_path}",
            fix="leave out -t" + (" and -y" if arguments.label_path else ""),
        )
    truth: Any = None
    if arguments.label_path:
        truth = load_matrix(arguments.label_path, name="labels")
        check_validation_input(truth, parts.nr_labels, arguments.label_path)
        check_pair(texts, truth, arguments.text_path, arguments.label_path)

    if parts.head is None:
        parts.ranker.warn_if_out_of_reach(arguments.only_topk, arguments.beam_size)
    exported = export_model(parts, output, settings, warmup)
    print(exported.table())
    print(f"{output}: {exported.bytes / 1e6:,.1f} MB of variables")
    if parts.reads_text:
        print(
            "to load it in Python: import tensorflow_text, then tf.saved_model.load; TensorFlow Serving needs nothing"
        )
    if warmup is not None:
        _LOG.info("warm-up requests: %s", output / WARMUP)
    if truth is not None:
        _measure(arguments, model, texts, truth)
    elif arguments.weights != "fp32":
        _LOG.info("give texts and labels (-t, -y) to measure how much precision %s costs", arguments.weights)


def _load(folder: str) -> tuple[Any, Any]:
    """The model, and its parts for the export."""

    if kind_of(Path(folder)) == FINE_TUNED:
        from xmc_tf.models.exporting import parts_of
        from xmc_tf.models.xtransformer import XTransformer

        fine_tuned = XTransformer.load(folder)
        return fine_tuned, parts_of(fine_tuned)
    model = XRLinear.load(folder)
    return model, model.export_parts()


def _measure(arguments: argparse.Namespace, model: Any, texts: Any, truth: Any) -> None:
    """The precision of the model and of what was exported, by the same settings but the weights'."""
    from xmc_tf.serving.agreement import compare
    from xmc_tf.serving.local import LocalModel

    predicted = model.predict(
        texts,
        only_topk=arguments.only_topk,
        beam_size=arguments.beam_size,
        post_processor=arguments.post_processor,
        **({"scores": arguments.scores} if arguments.scores else {}),
    )
    lines = list(texts.lines())
    print(compare(truth.tocsr(), predicted, LocalModel(arguments.output).predict(lines)).table())


if __name__ == "__main__":
    cli.run(main)

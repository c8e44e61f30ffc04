"""``python -m xmc_tf.export``: export a model as a SavedModel for TensorFlow Serving, or for ONNX Runtime."""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import whole
from xmc_tf.common.process import cli
from xmc_tf.data import TextFile, check_pair, check_validation_input, load_matrix
from xmc_tf.metrics import format_table, measure, percent
from xmc_tf.models.folder import CARD, MARK, is_foreign
from xmc_tf.models.loading import load
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.params import (
    DECISIONS,
    SEARCH,
    add_flags,
    add_model_place,
    add_prediction_options,
    model_place,
    options_of_flags,
)
from xmc_tf.params.choices import ONNX
from xmc_tf.store.files import atomic_file
from xmc_tf.store.models import EXPORT, MODEL
from xmc_tf.store.outputs import refuse_model_folder
from xmc_tf.store.publishing import claimed_folder, temporary_folder_beside

_LOG = logging.getLogger(__name__)
LARGEST_LOSS = 0.2  # points of precision; an export for ONNX Runtime uses 8 bits by default if it loses less
_WARMUP = 64
_PRECISIONS = ("fp32", "fp16", "int8")
_SAVED_MODEL, _ONNX = "savedmodel", "onnx"
_DESCRIPTION = """Export a model as a SavedModel that maps raw text to label names with standard TensorFlow operations.

    python -m xmc_tf.export -m model -o served/1
    python -m xmc_tf.export -m model -o served/2 -k 10 -b 20 --weights int8 -t X.tst.txt -y Y.tst.npz
    python -m xmc_tf.export -m model -o light --format onnx -t X.tst.txt -y Y.tst.npz

The last part of -o is the version: TensorFlow Serving serves the highest version in served/. Try the export with
xmc-tf try served; docs/how-to/serving.md shows how to serve it.

With --format onnx, the output is a model folder whose encoder needs no TensorFlow; all commands accept it with -m."""


class Agreement(NamedTuple):
    ks: Sequence[int]
    model: list[float]
    exported: list[float]
    same_first: float  # share of documents with the same best label

    def table(self, model: str = "model", exported: str = "exported") -> str:
        """Return a table for the terminal, in which losses are in percentage points."""
        pairs = zip(self.model, self.exported, strict=True)
        losses = [f"{100 * (a - b):+.2f}".replace("-0.00", "+0.00") for a, b in pairs]
        rows = [[model, *map(percent, self.model)], [exported, *map(percent, self.exported)], ["loss", *losses]]
        table = format_table(["", *(f"P@{k}" for k in self.ks)], rows)
        return f"{table}\nthe same best label for {percent(self.same_first)} % of the documents"


def compare(truth: csr_matrix, model: csr_matrix, exported: csr_matrix, ks: Sequence[int] = (1, 3, 5)) -> Agreement:
    """Measure both predictions' precision at each k, up to the maximum number of predicted labels per document."""
    most = int(max(np.diff(model.indptr).max(initial=1), np.diff(exported.indptr).max(initial=1)))
    ks = [k for k in ks if k <= most]
    figures = [[measure(truth, one, ks=ks)[0].at("P", k) for k in ks] for one in (model, exported)]
    return Agreement(ks, figures[0], figures[1], float(np.mean(_first(model) == _first(exported))))


def _first(predicted: csr_matrix) -> np.ndarray:
    """Return the best predicted label of each document, or -1 if it has none."""
    some = np.diff(predicted.indptr) > 0
    out = np.full(predicted.shape[0], -1, np.int64)
    out[some] = predicted.indices[predicted.indptr[:-1][some]]
    return out


def parser() -> cli.Parser:
    out = cli.make_parser("xmc_tf.export", _DESCRIPTION, usage="%(prog)s -m MODEL -o DIR/VERSION [options]")
    add = out.add_argument
    add_model_place(out, "folder of the model")
    add(
        "-o", "--output", required=True, metavar="DIR",
        help="output folder; for a SavedModel, its last part is the version, such as 1 in served/1",
    )  # fmt: skip
    add(
        "--format", choices=(_SAVED_MODEL, _ONNX), default=_SAVED_MODEL,
        help="a SavedModel, or a model folder whose encoder runs with ONNX Runtime",
    )  # fmt: skip
    add_prediction_options(out, *SEARCH, *DECISIONS)
    add(
        "--weights", choices=_PRECISIONS,
        help="number format of the weights; fp16 and int8 make the model smaller and less exact. For a SavedModel, it "
        "applies to the rankers (default: fp32); for onnx, to the encoder, with fp32 or int8 (default: int8 if -t and "
        f"-y show that it costs less than {LARGEST_LOSS} points of P@1, P@3 and P@5, else fp32)",
    )  # fmt: skip
    measured = "true labels of the texts, to measure the precision of the model and of the export"
    warming = "texts, one per line, for warm-up requests, or to measure with -y"
    add_flags(out, text_path={"help": warming}, label_path={"help": measured})
    add("--warmup", type=whole, default=_WARMUP, metavar="INT", help="number of warm-up requests")
    add_flags(out, "verbose_level")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """Export the model, and measure the exported model if there are labels."""
    arguments = parser().parse_args(argv)
    cli.set_verbosity(arguments.verbose_level)
    arguments.model_folder = model_place(arguments)
    output = Path(arguments.output)
    if arguments.format == _ONNX:
        _export_onnx(arguments, output)
        return
    arguments.weights = arguments.weights or "fp32"
    if not output.name.isdigit():
        raise InputError(
            f"-o {arguments.output}: the last part must be the version, a number", expected="a name such as served/1",
            received=output.name,
        )  # fmt: skip
    inputs = {"-m": arguments.model_folder, "-t": arguments.text_path, "-y": arguments.label_path}
    refuse_model_folder("-o", output, inputs, export=True)
    with claimed_folder(output, EXPORT, fix="give another folder with -o, such as served/1"):
        _export(arguments, output)


def _export(arguments: cli.GivenFlags, output: Path) -> None:
    texts: Any = None
    if arguments.text_path:
        texts = TextFile(arguments.text_path)
        texts.check()
    else:
        arguments.refuse("label_path", "warmup", needs="texts", expected="-t with the texts of the labels or requests")

    _LOG.info("loading TensorFlow")
    from xmc_tf.serving.export import Warmup, check_export, export_model
    from xmc_tf.serving.warmup import WARMUP, check_warmup

    # Everything that can be refused is refused here, before the export takes its place.
    options = options_of_flags(arguments, *SEARCH, *DECISIONS)
    check_export(options, arguments.weights)
    warmup = None
    if texts is not None and arguments.warmup:
        warmup = Warmup(texts, arguments.warmup)
        check_warmup(*warmup)
    model = load(arguments.model_folder)
    parts = model.export_parts()
    if texts is not None and not parts.reads_text:
        raise InputError(
            f"{arguments.model_folder}: this model was trained on features and cannot read texts",
            received=f"-t {arguments.text_path}", fix="leave out -t" + (" and -y" if arguments.label_path else ""),
        )  # fmt: skip
    truth: Any = None
    if arguments.label_path:
        truth = load_matrix(arguments.label_path, name="labels")
        check_validation_input(truth, parts.nr_labels, arguments.label_path)
        check_pair(texts, truth, arguments.text_path, arguments.label_path)

    if parts.head is None:
        added = parts.nr_labels - parts.ranker.nr_labels
        parts.ranker.warn_if_out_of_reach(arguments.only_topk, arguments.beam_size, added)
    exported = export_model(parts, output, options, warmup, precision=arguments.weights)
    print(exported.table())
    print(f"{output}: {exported.bytes / 1e6:,.1f} MB of variables")
    if parts.reads_text:
        first = "" if parts.dense is None else "import tensorflow_text, then "
        print(f"to load it in Python: {first}tf.saved_model.load; TensorFlow Serving loads it as is")
    if warmup is not None:
        _LOG.info("warm-up requests: %s", output / WARMUP)
    if truth is not None:
        from xmc_tf.serving.local import LocalModel

        exported_scores = LocalModel(output).predict(list(texts.lines()))
        print(compare(truth.tocsr(), model.predict(texts, **vars(options)), exported_scores).table())
    elif arguments.weights != "fp32":
        _LOG.info("give texts and labels (-t, -y) to measure how much precision %s costs", arguments.weights)


def _export_onnx(arguments: cli.GivenFlags, output: Path) -> None:
    """Write a model that runs its encoder with ONNX Runtime."""
    refused = (*SEARCH, *DECISIONS, "warmup", *(["weights"] if arguments.weights == "fp16" else []))
    arguments.refuse(
        *refused, where="with --format onnx", expected="-m, -o, --weights fp32 or int8, -t and -y",
        fix="leave it out, and set prediction options in predict or serve",
    )  # fmt: skip
    if (arguments.text_path is None) != (arguments.label_path is None):
        raise InputError("-t and -y can only be used together, to measure the export", expected="both, or neither")
    inputs = {"-m": arguments.model_folder, "-t": arguments.text_path, "-y": arguments.label_path}
    refuse_model_folder("-o", output, inputs)
    with claimed_folder(output, MODEL, fix="give another folder with -o"):
        model = load(arguments.model_folder, runtime=ONNX)
        if not isinstance(model, XTransformer):
            raise InputError(
                f"{arguments.model_folder} has no encoder and already runs without TensorFlow", fix="use it with -m"
            )
        if arguments.text_path is None:
            model.export_onnx(output, precision=arguments.weights or "fp32")
        else:
            texts = TextFile(arguments.text_path)
            texts.check()
            truth = load_matrix(arguments.label_path, name="labels")
            check_validation_input(truth, model.nr_labels, arguments.label_path)
            check_pair(texts, truth, arguments.text_path, arguments.label_path)
            chosen, measured = export_measured(model, output, arguments.weights or "auto", texts, csr_matrix(truth))
            print(measured.table("float32", "8 bits"))
            print(f"the encoder's matrices have {'8 bits' if chosen == 'int8' else 'float32'}")
    print(f"{output}: use it with -m")


def export_measured(
    model: XTransformer, folder: Path, precision: str, texts: Any, truth: csr_matrix
) -> tuple[str, Agreement]:
    """Export a model for ONNX Runtime; return the chosen precision, and the metrics of fp32 and int8."""
    temporary, predictions = temporary_folder_beside(folder.resolve()), {}
    try:
        for one in ("fp32", "int8"):
            model.export_onnx(temporary / one, precision=one)
            predictions[one] = load(temporary / one).predict(texts)
    finally:
        shutil.rmtree(temporary)
    measured = compare(truth, predictions["fp32"], predictions["int8"])
    if precision == "auto":
        losses = [100 * (a - b) for a, b in zip(measured.model, measured.exported, strict=True)]
        precision = "int8" if max(losses) < LARGEST_LOSS else "fp32"
    model.export_onnx(folder, precision=precision)
    _write_card(model.folder, folder, precision, measured, truth.shape[0])
    return precision, measured


def _write_card(source: Path, folder: Path, precision: str, measured: Agreement, documents: int) -> None:
    """Write the model card: xmc_tf's card of the original model, if there is one, and the effect of 8-bit weights."""
    card = source / CARD
    ours = card.is_file() and not is_foreign(card)
    text = card.read_text(encoding="utf-8") if ours else f"{MARK}\n\n# {folder.name}\n"
    rows = [("float32", measured.model), ("8 bits", measured.exported)]
    lines = [
        "", "## Export for ONNX Runtime", "",
        f"The encoder's matrices have {'8 bits' if precision == 'int8' else 'float32'}. Precision in percent on "
        f"{documents:,} documents:", "",
        f"| | {' | '.join(f'P@{k}' for k in measured.ks)} |", f"|---|{'---:|' * len(measured.ks)}",
        *(f"| {name} | {' | '.join(f'{100 * value:.2f}' for value in values)} |" for name, values in rows),
    ]  # fmt: skip
    if is_foreign(folder / CARD):
        _LOG.warning("%s was not written by xmc_tf and is kept, so no model card is written", folder / CARD)
        return
    with atomic_file(folder / CARD) as part:
        part.write_text(text.rstrip("\n") + "\n" + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    cli.run(main)

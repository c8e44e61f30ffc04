"""Flags that several commands share."""

import argparse
import dataclasses
import logging
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import thread_number, whole
from xmc_tf.params.base import Params, shapes
from xmc_tf.params.choices import RUNTIMES
from xmc_tf.params.values import MisfitError

_LOG = logging.getLogger("xmc_tf.params")
P = TypeVar("P", bound=Params)
_METAVARS = {bool: "true/false", int: "INT", float: "NUMBER"}


def add_arguments(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup,
    cls: type[Params],
    *names: str,
    flags: Mapping[str, tuple[str, ...]] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> None:
    """Add a flag for each named parameter (default: all that are not blocks), with the type, choices and help of its
    class.
    """
    known = {field.name: field for field in dataclasses.fields(cls)}
    for name in names or [name for name, shape in shapes(cls).items() if not dataclasses.is_dataclass(shape.type)]:
        field, shape = known[name], shapes(cls)[name]
        parser.add_argument(
            *(flags or {}).get(name, (f"--{name.replace('_', '-')}",)), dest=name,
            type={bool: truth, int: whole}.get(shape.type, shape.type), choices=field.metadata["choices"] or None,
            default=(defaults or {}).get(name, field.default),
            metavar=None if field.metadata["choices"] else _METAVARS.get(shape.type, "TEXT"),
            help=field.metadata["help"].replace("%", "%%"),
        )  # fmt: skip


def from_arguments(cls: type[P], arguments: argparse.Namespace, **given: Any) -> P:
    """Create parameters from flags. A flag that several blocks share (``threads``) applies to all, as in PECOS."""
    values = dict(given)
    for name, shape in shapes(cls).items():
        if name in values:
            continue
        if issubclass(shape.type, Params):
            values[name] = from_arguments(shape.type, arguments)
        elif getattr(arguments, name, None) is not None:
            values[name] = getattr(arguments, name)
    try:
        return cls(**values)
    except MisfitError as misfit:
        flag = f"--{misfit.key.replace('_', '-')}"
        fault = f"{flag} {misfit.fault}"
        raise InputError(fault, expected=misfit.expected, received=misfit.received, fix=misfit.fix) from None


def truth(text: str) -> bool:
    """Parse ``true`` or ``false`` (also yes, no, 1, 0)."""
    if text.lower() in ("true", "t", "yes", "y", "1"):
        return True
    if text.lower() in ("false", "f", "no", "n", "0"):
        return False
    raise argparse.ArgumentTypeError(f"expected true or false, received {text!r}")


_BATCHES = "batches are made by TensorFlow's own threads"
_BALANCED = "clusters are always balanced"
_TOKENS = "tokens are kept in the work folder"

# Command (the module's name below xmc_tf) → flag → why it has no effect.
WITHOUT_EFFECT: Mapping[str, Mapping[str, str]] = {
    "train": {
        "--imbalanced-ratio": _BALANCED,
        "--imbalanced-depth": _BALANCED,
        "--saved-trn-pt": _TOKENS,
        "--saved-val-pt": _TOKENS,
        "--pre-tokenize": "documents are always tokenized before training",
        "--pre-tensorize-labels": "label batches are always made before training",
        "--batch-gen-workers": _BATCHES,
        "--max-num-labels-in-gpu": "the label head is sharded over the ranks and stays on the device",
        "--checkpoint-dir": "checkpoints are kept in the work folder (--work-dir)",
        "--hostfile": "name the hosts to horovodrun or mpiexec, which start the ranks",
        "--shard-scheme": "the ranks share the documents of every epoch evenly",
        "--max-shard-size": "documents are read from files that are mapped into memory",
    },
    "predict": {"--batch-gen-workers": _BATCHES, "--seed": "prediction is deterministic"},
    "encode": {
        "--batch-gen-workers": _BATCHES,
        "--max-pred-chunk": "documents are read in batches; only their embeddings are kept in memory",
        "--local_rank": "each rank selects its device by its number on the host",
    },
    "linear.train": {"--main-workload-factor": "ranks take work as they become free"},
    "preprocess build": {"--dtype": "features are always float32"},
    "preprocess run": {
        "--batch-size": "only vectorizers that are transformers have batches",
        "--use-gpu": "TF-IDF runs on the CPU",
        "--buffer-size": "text files are mapped into memory",
    },
}
SHORT_FORMS = {"--main-workload-factor": ("-mwf",), "--dtype": ("-t",)}


def add_without_effect(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the command's flags that have no effect, each with one value. They are in the reference, not in the help."""
    for flag in WITHOUT_EFFECT[command]:
        parser.add_argument(*SHORT_FORMS.get(flag, ()), flag, metavar="VALUE", help=argparse.SUPPRESS)


def warn_without_effect(arguments: argparse.Namespace, command: str) -> None:
    """Warn about each flag that is set but has no effect."""
    for flag, reason in WITHOUT_EFFECT[command].items():
        if getattr(arguments, flag.strip("-").replace("-", "_")) is not None:
            _LOG.warning("%s has no effect: %s", flag, reason)


_Flags = argparse._ActionsContainer  # a parser, or a group of its flags


def add_model(flags: _Flags, *, required: bool = False) -> None:
    flags.add_argument("-m", "--model-folder", required=required, metavar="DIR", help="folder of the model")


def add_model_place(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the model's folder as a positional argument and as a flag; read it with :func:`model_place`."""
    parser.add_argument("model_place", nargs="?", metavar="MODEL", help=what)
    parser.add_argument("-m", "--model-folder", metavar="MODEL", help="same as MODEL; give one of the two")


def model_place(arguments: argparse.Namespace) -> str:
    """Return the model's folder from the positional argument or the flag, of which exactly one must be given."""
    given: list[str] = [one for one in (arguments.model_place, arguments.model_folder) if one is not None]
    if len(given) != 1:
        raise InputError(
            "both MODEL and -m are given" if given else "the model is missing", expected="the folder of one model",
            fix="leave one of them out" if given else "add -m model",
        )  # fmt: skip
    return given[0]


def add_texts(flags: _Flags, *, required: bool = False) -> None:
    flags.add_argument("-t", "--text-path", required=required, metavar="FILE", help="texts, one per line")


def add_queries(flags: _Flags) -> None:
    flags.add_argument(
        "-q", "--query", nargs="+", action="extend", metavar="TEXT",
        type=lambda text: sys.stdin.read().strip() if text == "-" else text,
        help="one or more texts; may be repeated; - reads a text from standard input",
    )  # fmt: skip


def add_predictions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--save-pred-path", metavar="FILE",
        help="output file: a matrix, or with the extension .jsonl one line per document (default: print)",
    )  # fmt: skip
    parser.add_argument("-y", "--label-path", metavar="FILE", help="true labels, to print precision and recall")
    add_layout(parser)


def add_batch_size(parser: argparse.ArgumentParser) -> None:
    said = "number of full-length documents (or windows of long ones) to encode at a time"
    parser.add_argument("--batch-size", type=whole, default=32, metavar="INT", help=said)


def add_gpu(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--use-gpu", type=truth, default=True, metavar="true/false", help="use GPUs if there are any")


def add_runtime(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--runtime", choices=RUNTIMES, default="auto",
        help="runtime of the encoder (default: TensorFlow, unless it is not installed or the model was exported for "
        "ONNX Runtime)",
    )  # fmt: skip


def add_threads(parser: argparse.ArgumentParser, *short: str) -> None:
    parser.add_argument(
        *short, "--threads", type=thread_number, default=-1, metavar="INT", help="number of threads; -1: one per core"
    )


def add_label_names(flags: _Flags, *, with_effort: bool = False) -> None:
    """Add the flags for label names and probabilities. With ``with_effort``, both are off by default unless --effort is
    given.
    """
    only = "with --effort, " if with_effort else ""
    flags.add_argument(
        "--labels", metavar="FILE",
        help="label names, one per line in the order of the label columns, followed by alternative names after tabs",
    )  # fmt: skip
    flags.add_argument(
        "--vocabulary", metavar="FILE",
        help="SKOS vocabulary (.ttl, .rdf, .xml, .nt) with the names of the labels; each line of --labels is then a "
        "concept's identifier or preferred name",
    )  # fmt: skip
    enough = "true if label names are used, or for 200 or more documents and either no encoder or a cross-entropy loss"
    flags.add_argument(
        "--probabilities", type=truth, default=None, metavar="true/false",
        help="predict calibrated probabilities, learned from held-out documents, instead of the rankers' scores; they "
        "rank labels better, and --min-precision needs them "
        f"(default: {only}{enough})",
    )  # fmt: skip
    flags.add_argument(
        "--label-names", type=truth, default=None, metavar="true/false",
        help="learn from label names: each is a training document of its label, and evidence where a text mentions it; "
        "improves predictions and probabilities, and finds labels without documents "
        f"(default: {only}true if there are texts and label names)",
    )  # fmt: skip


def add_keep_training_data(flags: _Flags, default: bool | None = False) -> None:
    """Add --keep-training-data. With the default None, training on a table decides by data size."""
    said = "true for up to 20 MB" if default is None else str(default).lower()
    flags.add_argument(
        "--keep-training-data", nargs="?", const=True, type=truth, default=default, metavar="true/false",
        help="keep the training documents' features and labels in the model, for xmc-tf append; they take about 8 "
        "bytes per distinct word or n-gram of a document, and anyone who has the model has them "
        f"(default: {said})",
    )  # fmt: skip


def add_only_labels(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only-labels", metavar="FILE", help="predict only these labels: names or numbers (from 0), one per line"
    )


def add_layout(parser: _Flags, default: str = "table") -> None:
    parser.add_argument(
        "--layout", choices=("table", "pecos"), default=default,
        help="layout of precision and recall: a table, or the lines that PECOS prints (prec = ..., recall = ...; "
        "k = 1 to 10), for scripts that parse them",
    )  # fmt: skip


def add_force(parser: _Flags) -> None:
    parser.add_argument("--force", action="store_true", help="replace files even if this command did not write them")


def add_verbosity(parser: _Flags) -> None:
    parser.add_argument(
        "--verbose-level", type=whole, default=1, choices=range(4), metavar="0-3",
        help="log level; 0: warnings, 1: progress, 2 and 3: details",
    )  # fmt: skip

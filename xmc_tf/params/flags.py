"""The flags of the commands, each declared once: here, or as a parameter. A command lists the flags that it takes."""

import argparse
import dataclasses
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import thread_number, whole
from xmc_tf.params.base import Params, shapes
from xmc_tf.params.choices import RUNTIMES
from xmc_tf.params.values import MisfitError

_LOG = logging.getLogger("xmc_tf.params")
P = TypeVar("P", bound=Params)
T = TypeVar("T")
_METAVARS = {bool: "true/false", int: "INT", float: "NUMBER"}

SHORT = {
    "model_folder": "-m", "text_path": "-t", "feat_path": "-x", "label_path": "-y", "output": "-o", "query": "-q",
    "save_pred_path": "-o", "code_path": "-c", "label_feat_path": "-f", "negative_sampling": "-ns", "solver_type": "-s",
    "max_nonzeros_per_label": "-z", "only_topk": "-k", "beam_size": "-b", "post_processor": "-pp",
    "max_pred_chunk": "-B", "threads": "-n",
}  # fmt: skip
"""Short spellings, as in PECOS. The long spelling of a flag is its name."""
LONG = {"neg_mining_chain": "negative_sampling"}  # parameter → PECOS's flag


def truth(text: str) -> bool:
    """Parse ``true`` or ``false`` (also yes, no, 1, 0)."""
    if text.lower() in ("true", "t", "yes", "y", "1"):
        return True
    if text.lower() in ("false", "f", "no", "n", "0"):
        return False
    raise argparse.ArgumentTypeError(f"expected true or false, received {text!r}")


_SWITCH = {"action": "store_true"}
_TRUTH = {"type": truth, "metavar": "true/false"}
_FILE, _FOLDER, _NUMBER = {"metavar": "FILE"}, {"metavar": "DIR"}, {"type": whole, "metavar": "INT"}

FLAGS: Mapping[str, Mapping[str, Any]] = {
    "model_folder": {**_FOLDER, "help": "folder of the model"},
    "text_path": {**_FILE, "help": "texts, one per line"},
    "feat_path": {
        **_FILE, "nargs": "+", "help": "features, .npz or .npy; two files, sparse then dense, are concatenated",
    },
    "label_path": {**_FILE, "help": "labels of the documents, .npz (documents × labels)"},
    "output": {**_FOLDER, "help": "folder of the new model", "default_text": "replace the model"},
    "query": {
        "nargs": "+", "action": "extend", "metavar": "TEXT",
        "type": lambda text: sys.stdin.read().strip() if text == "-" else text,
        "help": "one or more texts; may be repeated; - reads a text from standard input",
    },
    "save_pred_path": {
        **_FILE, "help": "output file: a matrix, or with the extension .jsonl one line per document",
        "default_text": "print",
    },
    "only_labels": {**_FILE, "help": "predict only these labels: names or numbers (from 0), one per line"},
    "generate_params_skeleton": {**_SWITCH, "help": "print a parameter file with all defaults"},
    "params_path": {"metavar": "JSON", "help": "parameter file; flags that are given replace its values"},
    "labels": {
        **_FILE, "help": "label names, one per line in the order of the label columns, followed by alternative names "
        "after tabs",
    },
    "vocabulary": {
        **_FILE, "help": "SKOS vocabulary (.ttl, .rdf, .xml, .nt) with the names of the labels; each line of --labels "
        "is then a concept's identifier or preferred name",
    },
    "probabilities": {
        **_TRUTH, "help": "predict calibrated probabilities, learned from held-out documents, instead of the rankers' "
        "scores; they rank labels better, and --min-precision needs them",
        "default_text": "true if label names are used, or for 200 or more documents and either no encoder or a "
        "cross-entropy loss",
    },
    "label_names": {
        **_TRUTH, "help": "learn from label names: each is a training document of its label, and evidence where a text "
        "mentions it; improves predictions and probabilities, and finds labels without documents",
        "default_text": "true if there are texts and label names",
    },
    "keep_training_data": {
        **_TRUTH, "nargs": "?", "const": True, "default": False, "default_text": "false",
        "help": "keep the training documents' features and labels in the model, for xmc-tf append; they take about 8 "
        "bytes per distinct word or n-gram of a document, and anyone who has the model has them",
    },
    "code_path": {
        "metavar": "PATH", "help": "label tree to use: a folder, or one matrix of labels × clusters",
        "default_text": "built by clustering",
    },
    "label_feat_path": {**_FILE, "help": "label features to build the tree from, instead of PIFA"},
    "seed": {**_NUMBER, "default": 0, "help": "random seed"},
    "threads": {"type": thread_number, "default": -1, "metavar": "INT", "help": "number of threads; -1: one per core"},
    "batch_size": {
        **_NUMBER, "default": 32,
        "help": "number of full-length documents (or windows of long ones) to encode at a time",
    },
    "use_gpu": {**_TRUTH, "default": True, "help": "use GPUs if there are any"},
    "runtime": {
        "choices": RUNTIMES, "default": "auto", "help": "runtime of the encoder",
        "default_text": "TensorFlow, unless it is not installed or the model was exported for ONNX Runtime",
    },
    "layout": {
        "choices": ("table", "pecos"), "default": "table",
        "help": "layout of precision and recall: a table, or the lines that PECOS prints (prec = ..., recall = ...; "
        "k = 1 to 10), for scripts that parse them",
    },
    "force": {**_SWITCH, "help": "replace files even if this command did not write them"},
    "verbose_level": {
        "type": whole, "default": 1, "choices": range(4), "metavar": "0-3",
        "help": "log level; 0: warnings, 1: progress, 2 and 3: details",
    },
}  # fmt: skip
"""The options of each flag that is not a parameter, as :func:`add_flags` takes them."""


def add_flags(
    to: argparse._ActionsContainer, *names: str, of: type[Params] | None = None, **changes: Mapping[str, Any]
) -> None:
    """Add flags by name: those of ``FLAGS``, or of a parameter class (default: its parameters that are not blocks).

    Args:
        to: the parser, or a group of its flags.
        names: the flags, in the order of the help.
        of: the class whose parameters the names are.
        changes: by flag, what differs in this command: options of ``add_argument``; ``also``, further spellings (such
            as PECOS's); and ``default_text``, which the help says about the default.
    """
    declared = FLAGS if of is None else _flags_of(of)
    for name in dict.fromkeys((*names, *changes)) or declared:
        options = {**declared[name], **changes.get(name, {})}
        also: Iterable[str] = options.pop("also", ())
        if text := options.pop("default_text", ""):
            options["help"] += f" (default: {text})"
        long = LONG.get(name, name)
        short = [SHORT[long]] if long in SHORT else []
        to.add_argument(*short, f"--{long.replace('_', '-')}", *also, dest=name, **options)


def _flags_of(cls: type[Params]) -> dict[str, dict[str, Any]]:
    """Return the flag of each parameter of a class that is not a block."""
    return {
        field.name: {
            "type": {bool: truth, int: whole}.get(shape.type, shape.type), "default": field.default,
            "choices": field.metadata["choices"] or None, "help": field.metadata["help"].replace("%", "%%"),
            "metavar": None if field.metadata["choices"] else _METAVARS.get(shape.type, "TEXT"),
        }
        for field in dataclasses.fields(cls)
        if not dataclasses.is_dataclass((shape := shapes(cls)[field.name]).type)
    }  # fmt: skip


def from_arguments(cls: type[P], arguments: argparse.Namespace) -> P:
    """Create parameters from flags. A flag that several blocks share (``threads``) applies to all, as in PECOS."""
    values = {name: getattr(arguments, name, None) for name in _names(cls)}
    return override(cls(), {name: value for name, value in values.items() if value is not None})


def _names(cls: type[Params]) -> Iterator[str]:
    """Yield the names of all parameters of a class and of its blocks."""
    for name, shape in shapes(cls).items():
        if issubclass(shape.type, Params):
            yield from _names(shape.type)
        else:
            yield name


def override(params: T, flags: Mapping[str, Any]) -> T:
    """Return parameters, or a list of them, with the values of flags in all blocks that have these parameters."""
    try:
        return _override(params, flags)
    except MisfitError as misfit:
        flag = f"--{misfit.key.replace('_', '-')}"
        fault = f"{f'{SHORT[misfit.key]} ({flag})' if misfit.key in SHORT else flag} {misfit.fault}"
        raise InputError(fault, expected=misfit.expected, received=misfit.received, fix=misfit.fix) from None


def _override(params: Any, flags: Mapping[str, Any]) -> Any:
    if isinstance(params, tuple):
        # Trees with the same seed would be the same tree.
        return tuple(
            _override(one, {**flags, "seed": flags["seed"] + i} if "seed" in flags else flags)
            for i, one in enumerate(params)
        )
    changes = {name: flags[name] for name in shapes(type(params)) if name in flags}
    for name, shape in shapes(type(params)).items():
        if issubclass(shape.type, Params):
            changes[name] = _override(getattr(params, name), flags)
    return dataclasses.replace(params, **changes)


def differing(cls: type[Params], content: Any, flags: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the flag and the value of each parameter of a file that differs from the flag."""
    entries = content if isinstance(content, list) else [content or {}]
    for i, entry in enumerate(entries):
        for name, shape in shapes(cls).items():
            # -k sets the number of labels of the last level, and -b that of nodes of the levels above.
            flag = "beam_size" if name == "only_topk" and i + 1 < len(entries) else name
            if issubclass(shape.type, Params):
                yield from differing(shape.type, entry.get(name), flags)
            elif flag in flags and name in entry and entry[name] != flags[flag]:
                yield flag, entry[name]


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


def add_model_place(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the model's folder as a positional argument and as a flag; read it with :func:`model_place`."""
    parser.add_argument("model_place", nargs="?", metavar="MODEL", help=what)
    add_flags(parser, model_folder={"metavar": "MODEL", "help": "same as MODEL; give one of the two"})


def model_place(arguments: argparse.Namespace) -> str:
    """Return the model's folder from the positional argument or the flag, of which exactly one must be given."""
    given: list[str] = [one for one in (arguments.model_place, arguments.model_folder) if one is not None]
    if len(given) != 1:
        raise InputError(
            "both MODEL and -m are given" if given else "the model is missing", expected="the folder of one model",
            fix="leave one of them out" if given else "add -m model",
        )  # fmt: skip
    return given[0]

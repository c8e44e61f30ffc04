"""Flags that are accepted for PECOS's scripts and have no effect, with the reasons: one table for all commands."""

import argparse
import logging
from collections.abc import Mapping

_LOG = logging.getLogger("xmc_tf.params")

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
        "--cost-sensitive-ranker": "use --rel-mode and --rel-norm for cost-sensitive rankers",
        "--hostfile": "name the hosts to horovodrun or mpiexec, which start the ranks",
        "--shard-scheme": "the ranks share the documents of every epoch evenly",
        "--max-shard-size": "documents are read from files that are mapped into memory",
    },
    "predict": {
        "--batch-gen-workers": _BATCHES,
        "--seed": "prediction is deterministic",
    },
    "encode": {
        "--batch-gen-workers": _BATCHES,
        "--max-pred-chunk": "documents are read in batches; only their embeddings are kept in memory",
        "--local_rank": "each rank takes its device by its number on the host",
    },
    "linear.train": {
        "--main-workload-factor": "ranks take work as they become free",
    },
    "preprocess build": {
        "--dtype": "features are always float32",
    },
    "preprocess run": {
        "--batch-size": "only vectorizers that are transformers have batches",
        "--use-gpu": "TF-IDF runs on the CPU",
        "--buffer-size": "text files are mapped into memory",
    },
}
SHORT_FORMS = {"--main-workload-factor": ("-mwf",), "--dtype": ("-t",)}


def add_without_effect(parser: argparse.ArgumentParser, command: str) -> None:
    """Accept the command's flags without effect; each takes one value. The reference lists them, the help does not."""
    for flag in WITHOUT_EFFECT[command]:
        parser.add_argument(*SHORT_FORMS.get(flag, ()), flag, metavar="VALUE", help=argparse.SUPPRESS)


def warn_without_effect(arguments: argparse.Namespace, command: str) -> None:
    """Warn about each flag that was given and has no effect."""
    for flag, reason in WITHOUT_EFFECT[command].items():
        if getattr(arguments, flag.strip("-").replace("-", "_")) is not None:
            _LOG.warning("%s has no effect: %s", flag, reason)

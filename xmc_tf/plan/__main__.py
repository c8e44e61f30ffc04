"""``python -m xmc_tf.plan``: estimate the memory, network traffic and duration of a training run."""

import argparse
import json
import re
from collections.abc import Sequence

from xmc_tf.common.errors import InputError
from xmc_tf.common.process import cli
from xmc_tf.params import MatcherParams, add_flags, from_arguments
from xmc_tf.params.choices import HEAD_PRECISIONS
from xmc_tf.plan.estimate import estimate
from xmc_tf.plan.formulas import DEVICES, ENCODERS, DataSizes, FineTuningOptions, Machines, encoder_size, parse_hosts

_DESCRIPTION = """Estimate memory per rank, network traffic and duration of a training run.

    python -m xmc_tf.plan --labels 3e6 --docs 2e6 --encoder bert-base --hosts 4x8 --device a100
    python -m xmc_tf.plan --labels 500k --docs 5M --hosts 1x2 --cores 8

Without --encoder, the estimate is for linear rankers. It uses speeds measured on other machines, or, with
--docs-per-second, your own speed of fine-tuning."""
_OF_ENCODERS = (
    "tokens", "train_layers", "lora_rank", "batch_size", "epochs", "max_match_clusters", "half", "head_precision",
    "device", "docs_per_second",
)  # fmt: skip
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9}


def number(text: str) -> float:
    """Parse a positive number such as ``3e6``, ``2M`` or ``500k``."""
    match = re.fullmatch(r"(\d{1,15}(?:[_,]\d{3})*(?:\.\d+)?(?:e\+?\d{1,2})?)([kmgb]?)", text.strip().lower())
    value = float(re.sub("[_,]", "", match[1])) * _UNITS[match[2]] if match else 0.0
    if not 0 < value <= 1e13:
        raise argparse.ArgumentTypeError(f"expected a positive number, such as 3e6, 2M or 500k, received {text!r}")
    return value


def whole(text: str) -> int:
    """Parse a positive integer such as ``3e6``."""
    value = number(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, received {text!r}")
    return round(value)


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser("xmc_tf.plan", _DESCRIPTION)
    data, fine, machines = DataSizes(1, 1), FineTuningOptions(), Machines(1, 1)
    add = out.add_argument_group("data").add_argument
    add("--labels", type=whole, required=True, metavar="N", help="number of labels")
    add("--docs", type=whole, required=True, metavar="N", help="number of training documents")
    add("--labels-per-doc", type=number, default=data.labels_per_document, metavar="N",
        help="mean number of labels per document")  # fmt: skip
    add("--tokens", type=whole, default=data.tokens, metavar="N", help="mean number of tokens read per document")
    add("--entries", type=number, default=data.entries, metavar="N", help="mean number of TF-IDF features per document")
    add("--features", type=whole, default=data.features, metavar="N", help="number of distinct TF-IDF features")
    group = out.add_argument_group("model")
    add = group.add_argument
    add("--encoder", metavar="NAME", help=f"encoder: a folder with config.json, or {', '.join(ENCODERS)}")
    add_flags(group, "train_layers", "lora_rank", of=MatcherParams)
    add("--batch-size", type=whole, default=fine.batch_size, metavar="N", help="documents per step and rank")
    add("--epochs", type=number, default=fine.epochs, metavar="N", help="number of training epochs")
    add("--max-match-clusters", type=whole, default=fine.max_match_clusters, metavar="N",
        help="maximum number of nodes at the level that is fine-tuned")  # fmt: skip
    add("--half", action="store_true", help="compute in half precision (--mixed-precision)")
    add("--head-precision", choices=HEAD_PRECISIONS, default="fp32",
        help="number format of the label head; bf16 takes far less memory, for millions of nodes")  # fmt: skip
    add("--trees", type=whole, default=1, metavar="N", help="number of label trees of the rankers")
    add("--nr-splits", type=whole, default=fine.nr_splits, metavar="N", help="number of children per node of the tree")
    add(
        "--max-leaf-size", type=whole, default=fine.max_leaf_size, metavar="N", help="maximum number of labels per leaf"
    )
    add = out.add_argument_group("machines").add_argument
    add("--hosts", default="1x1", metavar="HxR", help="hosts x ranks per host, such as 4x8")
    add("--device", choices=sorted(DEVICES), default="cpu-core", help="hardware that each rank runs on")
    add("--docs-per-second", type=number, metavar="N",
        help="measured speed of fine-tuning on one rank (default: estimated from --device)")  # fmt: skip
    add("--cores", type=whole, default=machines.cores_per_rank, metavar="N", help="cores per rank, used by the rankers")
    add("--network", type=number, default=machines.network * 8 / 1e9, metavar="GBIT",
        help="network bandwidth of each host, in gigabits per second")  # fmt: skip
    add("--memory", type=number, default=machines.memory / 1e9, metavar="GB", help="memory of each host, in GB")
    out.add_argument("--json", action="store_true", help="print all figures as JSON, in bytes and seconds")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    a = parser().parse_args(argv)
    if a.encoder is None:
        a.refuse(*_OF_ENCODERS, where="for linear rankers", fix="add --encoder, or leave it out")
    if a.nr_splits < 2:
        raise InputError("--nr-splits is too small", expected="at least 2", received=str(a.nr_splits))
    hosts, ranks = parse_hosts(a.hosts)
    machines = Machines(hosts, ranks, a.cores, a.network * 1e9 / 8, a.memory * 1e9)
    given = argparse.Namespace(train_layers=a.train_layers, lora_rank=a.lora_rank)
    trained = from_arguments(MatcherParams, given)
    encoder = encoder_size(a.encoder, trained.train_layers, trained.lora_rank) if a.encoder else None
    device = DEVICES[a.device]
    if a.device == "cpu-core":
        device = type(device)(device.single * a.cores, device.half * a.cores, 0)
    data = DataSizes(a.labels, a.docs, a.labels_per_doc, a.entries, a.features, a.tokens)
    options = FineTuningOptions(
        a.batch_size, a.epochs, a.max_match_clusters, a.half, a.head_precision == "bf16", a.docs_per_second,
        a.nr_splits, a.max_leaf_size,
    )  # fmt: skip
    found = estimate(data, encoder, machines, device, options, trees=a.trees)
    if a.json:
        print(json.dumps(found.to_json()))
        return
    model = f"{a.encoder} ({encoder.weights / 1e6:,.0f} million weights)" if encoder else "linear rankers"
    where = f"{hosts} x {ranks} ranks" if machines.ranks > 1 else "1 rank"
    print(f"{a.labels:,} labels, {a.docs:,} documents, {model}, {where}\n\n{found.text()}")


if __name__ == "__main__":
    cli.run(main)

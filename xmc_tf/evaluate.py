"""``python -m xmc_tf.evaluate``: how good predictions are, one beside another."""

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xmc_tf.common import cli
from xmc_tf.common.errors import InputError
from xmc_tf.data import load_matrix, load_names
from xmc_tf.metrics import ENSEMBLES, as_truth, ensemble, inverse_propensity
from xmc_tf.metrics.compare import compare
from xmc_tf.metrics.files import load_prediction
from xmc_tf.metrics.measures import check_ks, check_shapes
from xmc_tf.metrics.report import write_report

_DESCRIPTION = """Measures predictions against the truth, one row a prediction file or ensemble.

  P@k         true labels among the first k, over k
  R@k         true labels among the first k, over the document's true labels
  nDCG@k      hits discounted by their rank, over the best that can be reached
  PSP@k, PSnDCG@k
              P and nDCG where rare labels are worth more (propensities of Jain et al. 2016), over the
              best that can be reached; need --train-labels
  micro-F1@k  F1 of the first k over all pairs of document and label
  macro-F1@k  F1 of each label, the mean over the labels that are true somewhere

A document without true labels counts as 0 in P, R and nDCG. Equal scores rank in the order of the label
ids. In the truth whatever is not zero is a label; in a prediction a stored zero is a score like any other.

Over a group of labels (how often does a label occur?) the truth is cut to the group, while the first k
stay as predicted. P@k counts the group's hits over all documents, so that the groups add up to the whole;
the others go over the documents that have a label of the group."""

_EXAMPLES = """examples:
  python -m xmc_tf.evaluate -y Y.tst.npz -p pred.npz -k 1,3,5
  python -m xmc_tf.evaluate -y Y.tst.npz -p a.npz b.npz --tags small large --ensemble average rank_average
  python -m xmc_tf.evaluate -y Y.tst.npz -p pred.npz --train-labels Y.trn.npz --labels labels.txt --report out
"""


def parser() -> argparse.ArgumentParser:
    """The command line's options."""
    parser = argparse.ArgumentParser(
        prog="python -m xmc_tf.evaluate",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=cli.HelpFormatter,
    )
    add = parser.add_argument
    add("-y", "--truth-path", required=True, metavar="PATH", help="the true labels, documents × labels")
    add("-p", "--pred-path", required=True, nargs="+", metavar="PATH", help="predictions of the same shape")
    add(
        "-k",
        "--topk",
        "--only-topk",
        dest="topk",
        default="1,3,5",
        metavar="K",
        help='the cut-offs: a list as in 1,3,5, or one number N for all from 1 to N ("5," for 5 alone)',
    )
    add("--json", action="store_true", help="print one JSON object, figures as shares from 0 to 1")
    add("--train-labels", metavar="PATH", help="the training labels, for propensities and label frequencies")
    add("--propensity-a", type=float, default=0.55, metavar="A", help="parameter A of the propensity model")
    add("--propensity-b", type=float, default=1.5, metavar="B", help="parameter B of the propensity model")
    add(
        "--buckets",
        default="10,50",
        metavar="BOUNDS",
        help="upper bounds of the groups of labels by frequency, in training where --train-labels is given, "
        'else in the truth; "none" for no groups',
    )
    add(
        "--ensemble",
        nargs="+",
        default=[],
        choices=list(ENSEMBLES),
        help="also measure the predictions made one",
    )
    add("--tags", nargs="+", metavar="NAME", help="names for the predictions, in their order")
    add("--labels", metavar="PATH", help="label names, one a line, for the report")
    add("--report", metavar="DIR", help="write DIR/index.html: tables, curves, groups, best and worst labels")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    args = parser().parse_args(argv)
    ks = _cut_offs(args.topk)
    bounds = [] if args.buckets == "none" else _numbers(args.buckets, "--buckets")
    names = args.tags or short_names(args.pred_path)
    if len(names) != len(args.pred_path):
        raise InputError(
            "--tags does not name every prediction",
            expected=f"{len(args.pred_path)} names",
            received=f"{len(names)}",
        )
    truth = as_truth(load_matrix(args.truth_path, name="the truth"), args.truth_path)
    label_names = load_names(args.labels, truth.shape[1]) if args.labels else None
    frequency = gains = None
    if args.train_labels:
        training = as_truth(load_matrix(args.train_labels, name="the training labels"), args.train_labels)
        if training.shape[1] != truth.shape[1]:
            raise InputError(
                f"{args.train_labels} has other labels than the truth",
                expected=f"{truth.shape[1]:,} columns, as {args.truth_path} has",
                received=f"{training.shape[1]:,}",
            )
        frequency = np.bincount(training.indices, minlength=training.shape[1])
        gains = inverse_propensity(frequency, training.shape[0], args.propensity_a, args.propensity_b)

    matrices = [load_prediction(path) for path in args.pred_path]
    for path, matrix in zip(args.pred_path, matrices, strict=True):
        check_shapes(truth, matrix, path)
    systems = list(zip(names, matrices, strict=True))
    systems += [(f"ensemble {way}", ensemble(way, matrices)) for way in args.ensemble]

    result = compare(
        truth,
        systems,
        ks,
        bounds=bounds,
        training_frequency=frequency,
        gains=gains,
        details=bool(args.report),
    )
    if args.json:
        print(json.dumps(result.to_json(), ensure_ascii=False))
    else:
        print(result.to_text(shutil.get_terminal_size((110, 24)).columns))
    if args.report:
        path = write_report(args.report, result, label_names)
        if not args.json:
            print(f"\nreport: {path}")


def short_names(paths: Sequence[str]) -> list[str]:
    """File names, with as many folders before them as it takes to tell them apart.

    Example:
        >>> short_names(["run1/pred.npz", "run2/pred.npz"])
        ['run1/pred.npz', 'run2/pred.npz']
    """
    parts = [Path(path).parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return list(paths)


def _cut_offs(text: str) -> tuple[int, ...]:
    numbers = check_ks(_numbers(text, "-k/--topk"))
    return numbers if "," in text else tuple(range(1, numbers[0] + 1))


def _numbers(text: str, option: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError(f"{option} cannot be read", expected="whole numbers, as in 1,3,5", received=text) from None


if __name__ == "__main__":
    cli.run(main)

"""``python -m xmc_tf.evaluate``: how good predictions are, one beside another."""

import argparse
from collections.abc import Sequence

from xmc_tf.common import cli
from xmc_tf.metrics.command import evaluate, make_parser

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
  python -m xmc_tf.evaluate -y Y.tst.npz -p pred.npz --layout pecos
"""


def parser() -> argparse.ArgumentParser:
    """The command line's options."""
    return make_parser("python -m xmc_tf.evaluate", _DESCRIPTION, _EXAMPLES, layout="table")


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    evaluate(parser().parse_args(argv))


if __name__ == "__main__":
    cli.run(main)

"""``python -m xmc_tf.evaluate``: measure and compare predictions."""

from collections.abc import Sequence

from xmc_tf.common.process import cli
from xmc_tf.report.evaluating import evaluate, evaluation_parser

_DESCRIPTION = """Measure predictions against the true labels: one row per prediction file or ensemble.

  P@k         precision: true labels among the first k, divided by k
  R@k         recall: true labels among the first k, divided by the document's number of true labels
  nDCG@k      discounted cumulative gain, divided by the best possible
  PSP@k, PSnDCG@k
              propensity-scored P and nDCG: rare labels weigh more (propensities of Jain et al. 2016),
              divided by the best possible; they need --train-labels
  micro-F1@k  F1 of the first k, over all pairs of document and label
  macro-F1@k  mean of the F1 of all labels that have a document
  P-near@k    as P, but a label also counts if it is directly broader or narrower than a true label
  P-sibling@k as P-near, but a label also counts if it shares a direct broader term with a true label;
              both need broader terms: of --vocabulary, or those that a model (-m) was trained with

A document without true labels counts as 0 in P, R and nDCG. Equal scores are ranked by label number.
In the true labels, every nonzero entry is a label; in a prediction, a stored zero is a score.

Labels are also grouped by frequency. For a group, only its labels count as true, and the first k stay as
predicted. P@k of a group is divided by the number of all documents, so that the groups add up to the
total; the other metrics average over the documents that have a label of the group."""

_EXAMPLES = """examples:
  python -m xmc_tf.evaluate -y Y.tst.npz -p pred.npz -k 1,3,5
  python -m xmc_tf.evaluate -y Y.tst.npz -p a.npz b.npz --tags small large --ensemble average rank_average
  python -m xmc_tf.evaluate -y Y.tst.npz -p pred.npz --train-labels Y.trn.npz --labels labels.txt --report report
  python -m xmc_tf.evaluate -y Y.tst.npz -p pred.npz --train-labels Y.trn.npz -m model -t X.tst.txt --report report
  python -m xmc_tf.evaluate -y Y.tst.npz -p pred.npz --layout pecos
"""


def parser() -> cli.Parser:
    return evaluation_parser("xmc_tf.evaluate", _DESCRIPTION, _EXAMPLES, layout="table")


def main(argv: Sequence[str] | None = None) -> None:
    """Evaluate predictions and print the metrics."""
    evaluate(parser().parse_args(argv))


if __name__ == "__main__":
    cli.run(main)

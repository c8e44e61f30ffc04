"""``python -m xmc_tf.linear.predict``: run ``xmc_tf.predict`` under the name that PECOS's scripts for XLinear use."""

from collections.abc import Sequence

from xmc_tf.common.process import cli
from xmc_tf.jobs.predict import predict, predict_parser

_DESCRIPTION = """Predict labels with a model of xmc_tf.linear.train or of PECOS's XR-Linear, as xmc_tf.predict does.

Print names and scores of the best labels of a text:
    python -m xmc_tf.linear.predict -m model -q "gradient of a sparse matrix"
Write label names and scores for a table, such as a CSV file:
    python -m xmc_tf.linear.predict data.csv --column text -m model -o labels.csv
Write a matrix of scores for a file of texts or of features:
    python -m xmc_tf.linear.predict -m model -t X.tst.txt -o pred.npz
    python -m xmc_tf.linear.predict -m model -x X.tst.npz -o pred.npz -y Y.tst.npz"""


def parser() -> cli.Parser:
    return predict_parser("xmc_tf.linear.predict", _DESCRIPTION)


def main(argv: Sequence[str] | None = None) -> None:
    """Predict labels, and save or print them."""
    predict(parser().parse_args(argv))


if __name__ == "__main__":
    cli.run(main)

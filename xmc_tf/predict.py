"""``python -m xmc_tf.predict``: predict labels with a linear model or an XR-Transformer, on one or more ranks."""

from collections.abc import Sequence

from xmc_tf.common.process import cli
from xmc_tf.jobs.predict import predict, predict_parser

_DESCRIPTION = """Predict labels with a model of xmc_tf.train, xmc_tf.linear.train, or PECOS.

Print names and scores of the best labels of a text:
    python -m xmc_tf.predict -m model -q "gradient of a sparse matrix"
Write label names and scores for a table, such as a CSV file:
    python -m xmc_tf.predict data.csv --column text -m model -o labels.csv
Write a matrix of scores for a file of texts, and print precision and recall:
    python -m xmc_tf.predict -m model -t X.tst.txt -o pred.npz -y Y.tst.npz
Predict from features, with linear rankers:
    python -m xmc_tf.predict -m model -x X.tst.npz -o pred.npz
Run on several ranks:
    horovodrun -np 4 python -m xmc_tf.predict -m model -t X.tst.txt -o pred.npz
Use a TensorFlow Serving server that serves the exported model:
    python -m xmc_tf.predict --server http://localhost:8501 -t X.tst.txt -o pred.npz"""


def parser() -> cli.Parser:
    return predict_parser("xmc_tf.predict", _DESCRIPTION)


def main(argv: Sequence[str] | None = None) -> None:
    """Predict labels, and save or print the result."""
    predict(parser().parse_args(argv))


if __name__ == "__main__":
    cli.run(main)

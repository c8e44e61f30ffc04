"""``python -m xmc_tf.linear.evaluate``: print the precision and recall of predictions in PECOS's format."""

from collections.abc import Sequence

from xmc_tf.common.process import cli
from xmc_tf.report.evaluating import evaluate, evaluation_parser

_DESCRIPTION = """Measure predictions against the true labels and print what pecos.xmc.xlinear.evaluate prints.

This is xmc_tf.evaluate with PECOS's layout as the default; it takes all flags of that command."""

_EXAMPLES = """examples:
  python -m xmc_tf.linear.evaluate -y Y.tst.npz -p pred.npz
  python -m xmc_tf.linear.evaluate -y Y.tst.npz -p pred.npz -k 5
"""


def parser() -> cli.Parser:
    return evaluation_parser("xmc_tf.linear.evaluate", _DESCRIPTION, _EXAMPLES, layout="pecos")


def main(argv: Sequence[str] | None = None) -> None:
    evaluate(parser().parse_args(argv))


if __name__ == "__main__":
    cli.run(main)

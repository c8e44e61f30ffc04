"""The evidence of label names: the name of a label stands in the text."""

from scipy.sparse import csr_matrix

from xmc_tf.fusion import ProbabilityModel
from xmc_tf.models.explaining.explanation import Evidence


def source_of_probability(evidence: ProbabilityModel) -> str:
    """Return what a probability is made of.

    Args:
        evidence: of the model.
    """
    sources = ["rankers"]
    if evidence.names is not None:
        sources.append("label names")
    if evidence.fusion.centers is not None:
        sources.append("the encoder")
    *first, last = sources
    return f"probability from {', '.join(first)} and {last}" if first else f"probability from {last}"


def name_evidence(matches: csr_matrix | None, label: int) -> list[Evidence]:
    """Return the evidence of a label's name, if it stands in the text.

    Args:
        matches: one document × labels, the worth of the names in the text; None: names are not used.
        label: number of the label.
    """
    worth = 0.0 if matches is None else float(matches[0, label])
    if not worth:
        return []
    return [
        Evidence(
            "label name", worth, note="a name of the label stands in the text; the share of such labels that are true"
        )
    ]

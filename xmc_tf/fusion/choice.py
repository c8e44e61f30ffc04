"""The decision whether a training learns probabilities, and whether the names of labels are evidence for them."""

import logging
from typing import NamedTuple

from xmc_tf.common.errors import InputError
from xmc_tf.fusion.held_out import ENOUGH_WITHOUT_NAMES, FEWEST

_LOG = logging.getLogger(__name__)


class EvidenceChoice(NamedTuple):
    """The things that a training learns beside rankers.

    Attributes:
        probabilities: whether scores become calibrated probabilities.
        label_names: whether names of labels in texts are evidence for them.
        why_not: why there are no probabilities; "" if there are.
    """

    probabilities: bool
    label_names: bool
    why_not: str = ""


class Obstacles(NamedTuple):
    """Reasons not to learn probabilities; "" where there is none.

    Attributes:
        names: why names cannot be evidence: "no label names".
        probabilities: why there can be no probabilities at all: "the mode matcher".
        default: why there are none unless the user asks for them.
    """

    names: str = ""
    probabilities: str = ""
    default: str = ""


def choose_evidence(
    probabilities: bool | None, label_names: bool | None, nr_documents: int, obstacles: Obstacles
) -> EvidenceChoice:
    """Return what a training learns, and log why it learns no probabilities if nobody has decided that.

    Args:
        probabilities: whether the user asks for probabilities; None: where there are enough documents.
        label_names: whether the user asks for label names as evidence; None: where it is possible.
        nr_documents: number of training documents.
        obstacles: what the training lacks.

    Raises:
        InputError: what the user asks for is not possible.
    """
    no_names = obstacles.names or obstacles.probabilities
    if label_names and no_names:
        raise InputError(
            "label names cannot be used as evidence",
            expected="texts (-t), label names (--labels), and rankers of the full model",
            received=no_names,
            fix="leave out --label-names, or give texts and names",
        )
    if label_names and probabilities is False:
        raise InputError(
            "--label-names true and --probabilities false exclude each other: names are evidence for probabilities",
            fix="leave one of them out",
        )
    if probabilities and obstacles.probabilities:
        raise InputError(
            "probabilities cannot be learned",
            expected="rankers of the full model",
            received=obstacles.probabilities,
            fix="leave out --probabilities",
        )
    if probabilities is False:
        return EvidenceChoice(False, False, "not asked for (--probabilities true learns them)")
    if not no_names and label_names is not False:
        return EvidenceChoice(True, True)
    least = FEWEST if probabilities else ENOUGH_WITHOUT_NAMES
    few = f"{nr_documents:,} documents are too few to hold some out" if nr_documents < least else ""
    if probabilities and few:
        raise InputError(
            "probabilities cannot be learned", expected=f"at least {FEWEST} documents, to hold some out",
            received=f"{nr_documents:,}", fix="leave out --probabilities",
        )  # fmt: skip
    why = obstacles.probabilities or ("" if probabilities else obstacles.default) or few
    if why:
        _LOG.info("scores are not calibrated probabilities: %s", why)
    return EvidenceChoice(not why, False, why)

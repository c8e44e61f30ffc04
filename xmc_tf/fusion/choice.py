"""Decide whether training learns probabilities, from which evidence, and on which held-out documents."""

import logging
from typing import NamedTuple

import numpy as np

from xmc_tf.common.errors import InputError

_LOG = logging.getLogger(__name__)
SHARE = 10  # one in ten documents is held out
ENOUGH_WITHOUT_NAMES = 200
"""Minimum number of documents from which probabilities are learned by default without label names."""
FEWEST = 20  # documents needed to hold some out
_ENOUGH, _MOST_FOLDS = 4000, 3
_LARGEST_SHARE = 4  # a single fold has at most one in four documents
_MOST_DOCUMENTS = 20_000


class EvidenceChoice(NamedTuple):
    """The decision whether to learn probabilities, and whether to use label names as evidence."""

    probabilities: bool
    label_names: bool
    why_not: str = ""  # why there are no probabilities; "" if there are


class SkipReasons(NamedTuple):
    """Reasons that prevent learning probabilities; "" means that there is no obstacle."""

    names: str = ""  # why names cannot be evidence: "no label names"
    probabilities: str = ""  # why there can be no probabilities at all: "the mode matcher"
    default: str = ""  # why there are none unless the user asks for them


def choose_evidence(
    probabilities: bool | None, label_names: bool | None, nr_documents: int, skip_reasons: SkipReasons
) -> EvidenceChoice:
    """Decide what to learn; if the user left probabilities open (None) and they are not learned, log the reason."""
    no_names = skip_reasons.names or skip_reasons.probabilities
    if label_names and no_names:
        raise InputError(
            "label names cannot be used as evidence",
            expected="texts (-t), label names (--labels), and all rankers (mode full-model)",
            received=no_names,
            fix="leave out --label-names, or give texts and names",
        )
    if label_names and probabilities is False:
        raise InputError(
            "--label-names true and --probabilities false are mutually exclusive: names are evidence for probabilities",
            fix="leave one of them out",
        )
    if probabilities and skip_reasons.probabilities:
        raise InputError(
            "probabilities cannot be learned",
            expected="all rankers (mode full-model)",
            received=skip_reasons.probabilities,
            fix="leave out --probabilities",
        )
    if probabilities is False:
        return EvidenceChoice(False, False, "not requested (--probabilities true learns them)")
    if not no_names and label_names is not False:
        return EvidenceChoice(True, True)
    least = FEWEST if probabilities else ENOUGH_WITHOUT_NAMES
    few = f"{nr_documents:,} documents are too few to hold some out" if nr_documents < least else ""
    if probabilities and few:
        raise InputError(
            "probabilities cannot be learned", expected=f"at least {FEWEST} documents, to hold some out",
            received=f"{nr_documents:,}", fix="leave out --probabilities",
        )  # fmt: skip
    why = skip_reasons.probabilities or ("" if probabilities else skip_reasons.default) or few
    if why:
        _LOG.info("scores are not calibrated probabilities: %s", why)
    return EvidenceChoice(not why, False, why)


def check_unlabelled(nr_texts: int, choice: EvidenceChoice) -> None:
    """Check that texts without labels have names of labels beside them."""
    if nr_texts and not choice.label_names:
        raise InputError(
            "texts without labels need label names as evidence: they show which words of names are rare",
            expected="label names, and neither --label-names false nor features",
            fix="leave out the texts without labels, or give names",
        )  # fmt: skip


def held_out_folds(nr_documents: int, seed: int, most: int | None = None, enough: int = _ENOUGH) -> list[np.ndarray]:
    """Return the documents (ascending) to hold out in each run: several runs if they are few, none below ``FEWEST``.

    If ``most`` allows only one run, it holds out up to one in four documents until there are ``enough``.
    """
    size = nr_documents // SHARE
    if nr_documents < FEWEST:
        return []
    folds = min(_MOST_FOLDS, -(-_ENOUGH // size))
    if most is not None:
        folds = min(folds, max(most, 1))
        size = min(size, _MOST_DOCUMENTS)
        if most <= 1:
            size = max(size, min(enough, nr_documents // _LARGEST_SHARE))
    order = np.random.default_rng([seed, 0x66757365]).permutation(nr_documents)
    return [np.sort(order[fold * size : (fold + 1) * size]) for fold in range(folds)]

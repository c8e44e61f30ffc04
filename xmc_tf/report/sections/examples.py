"""Examples: a few rightly and wrongly labelled documents, with the deciding words."""

from dataclasses import dataclass

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.models.explaining.explanation import LabelExplanation
from xmc_tf.report.inputs import ReportInputs
from xmc_tf.report.sections.scores import Decisions, Pairs

SHOWN_EACH = 4  # examples of each kind
TEXT_LENGTH = 1200
_LABELS = 8  # predicted labels of an example
_EXPLAINED_LENGTH = 100_000  # characters that the model reads for an explanation
KINDS = {"right": "All labels right", "wrong": "Wrong with a high score", "missed": "True labels not found"}


@dataclass(frozen=True)
class ExampleLabel:
    label: int
    score: float | None  # None if not predicted
    true: bool
    assigned: bool


@dataclass(frozen=True)
class Example:
    """A document with its true and predicted labels."""

    kind: str  # a key of KINDS
    document: int
    text: str
    cut: int  # characters that are left out
    labels: tuple[ExampleLabel, ...]  # the best predictions, then the other true labels
    explained: LabelExplanation | None = None


def choose_examples(inputs: ReportInputs, pairs: Pairs, decisions: Decisions) -> tuple[Example, ...]:
    """Choose examples: right and missed ones spread over all documents, and wrong ones with the highest scores."""
    if inputs.texts is None:
        return ()
    right, missed, wrong = (np.diff(m.indptr) for m in (decisions.right, decisions.missed, decisions.wrong))
    documents = {
        "right": _spread(np.flatnonzero((right > 0) & (wrong == 0) & (missed == 0))),
        "wrong": _highest_wrong(pairs, decisions),
        "missed": _spread(np.flatnonzero((missed > 0) & (right == 0))),
    }
    found: list[Example] = []
    for kind, chosen in documents.items():
        known = {example.document for example in found}
        found += [_example(inputs, decisions, kind, document) for document in chosen if document not in known]
    return tuple(found)


def _spread(documents: np.ndarray) -> list[int]:
    if not len(documents):
        return []
    places = np.linspace(0, len(documents) - 1, min(SHOWN_EACH, len(documents))).round().astype(int)
    return [int(document) for document in documents[places]]


def _highest_wrong(pairs: Pairs, decisions: Decisions) -> list[int]:
    wrong = np.flatnonzero(~pairs.correct)
    order = wrong[np.argsort(-pairs.scores[wrong], kind="stable")]
    documents: dict[int, int] = {}
    for pair in order[: 50 * SHOWN_EACH]:
        document, label = int(pairs.documents[pair]), int(pairs.labels[pair])
        is_assigned = decisions.wrong[document].indices
        if label in is_assigned and label not in documents.values() and document not in documents:
            documents[document] = label
        if len(documents) == SHOWN_EACH:
            break
    return list(documents)


def _example(inputs: ReportInputs, decisions: Decisions, kind: str, document: int) -> Example:
    assert inputs.texts is not None
    text = inputs.texts[document]
    text = text.decode("utf-8", errors="replace") if isinstance(text, bytes) else text
    row = inputs.predicted[document].tocsr()
    row.sum_duplicates()
    true = set(inputs.truth[document].indices.tolist())
    assigned = set(decisions.assigned[document].indices.tolist())
    ranked = sorted(zip(row.indices.tolist(), row.data.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0]))
    shown = [pair for place, pair in enumerate(ranked) if place < _LABELS and (pair[0] in assigned or place < 3)]
    labels = [ExampleLabel(label, float(score), label in true, label in assigned) for label, score in shown]
    scores = dict(ranked)
    labels += [
        ExampleLabel(label, scores.get(label), True, label in assigned)
        for label in sorted(true - {label for label, _ in shown})
    ]
    explained = _explanation(inputs, text[:_EXPLAINED_LENGTH], kind, labels)
    return Example(kind, document, text[:TEXT_LENGTH], max(len(text) - TEXT_LENGTH, 0), tuple(labels), explained)


def deciding_words(label: LabelExplanation, count: int) -> tuple[list[tuple[str, float]], float]:
    """Return the words that contributed most to a label, and the embedding's contribution, both averaged over trees."""
    nodes = [source.path[-1] for source in label.evidence if source.path]
    total: dict[str, float] = {}
    for node in nodes:
        for one in node.contributions:
            total[one.feature] = total.get(one.feature, 0.0) + one.amount / len(nodes)
    best = sorted(total.items(), key=lambda pair: -abs(pair[1]))[:count]
    return best, sum(node.embedding for node in nodes) / max(len(nodes), 1)


def _explanation(inputs: ReportInputs, text: str, kind: str, labels: list[ExampleLabel]) -> LabelExplanation | None:
    """Explain the best label, or the best wrong label of a wrong example; return None if the model cannot do this."""
    if inputs.model is None:
        return None
    try:
        found = inputs.model.explain(text, _LABELS).labels
    except InputError:  # a model of features cannot read the text
        return None
    # Compared by name, because the model may number its labels differently.
    wrong = [inputs.label_name(one.label) for one in labels if one.assigned and not one.true]
    of_interest = (one for one in found if one.name in wrong) if kind == "wrong" else iter(())
    return next(of_interest, found[0] if found else None)

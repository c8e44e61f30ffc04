"""A finding of an audit: something about the labels that a person should look at."""

from dataclasses import dataclass

MISSING, WRONG, DUPLICATES = "missing", "wrong", "duplicates"
SAME_LABELS, SILENT_NAME = "same labels", "silent name"
KINDS = {
    MISSING: "A label that the document probably should have.",
    WRONG: "A label that the document probably should not have.",
    DUPLICATES: "Two documents with nearly the same text and different labels.",
    SAME_LABELS: "Two labels that nobody can tell apart by the texts.",
    SILENT_NAME: "A label whose name is in none of its texts.",
}
"""The kinds of findings, each with what it says."""


@dataclass(frozen=True)
class Finding:
    """Something about the labels that a person should look at.

    Args:
        kind: one of ``KINDS``.
        row: row of the document, from 0; None: it is about a label alone.
        label: number of the label; None: it is about all labels of a document.
        other: row of the other document, or number of the other label; None: there is none.
        sure: how likely it is right, from 0 to 1.
        gain: number of labels of documents that are expected to become right.
        why: the reasons, in words.
    """

    kind: str
    row: int | None
    label: int | None
    other: int | None
    sure: float
    gain: float
    why: str

"""A finding of an audit: something about the labels that a person should check."""

from dataclasses import dataclass

MISSING, WRONG, DUPLICATES = "missing", "wrong", "duplicates"
SAME_LABELS, SILENT_NAME = "same labels", "silent name"
KINDS = {
    MISSING: "A label that the document probably should have.",
    WRONG: "A label that the document probably should not have.",
    DUPLICATES: "Two documents with nearly the same text and different labels.",
    SAME_LABELS: "Two labels that the texts do not distinguish.",
    SILENT_NAME: "A label whose name is in none of its texts.",
}
"""The kinds of findings, each with its meaning."""


@dataclass(frozen=True)
class Finding:
    """Something about the labels that a person should check."""

    kind: str  # one of KINDS
    row: int | None  # of the document, from 0; None: it is only about a label
    label: int | None  # None: it is about all labels of a document
    other: int | None  # row of the other document, or number of the other label
    sure: float  # how likely it is right, from 0 to 1
    gain: float  # expected number of labels of documents that become right
    why: str  # the reasons, in words

"""Find the labels of documents that are probably missing or wrong, and explain why."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from xmc_tf.audit.data import KINDS, MISSING, NOUNS, WRONG, AuditData, Finding
from xmc_tf.audit.evidence import PairEvidence, gather_evidence
from xmc_tf.audit.label_error_model import estimate_errors
from xmc_tf.audit.label_findings import different_duplicates, indistinguishable, silent_names
from xmc_tf.common.errors import InputError
from xmc_tf.params.pools import FUSED_LABELS

FEWEST_DOCUMENTS = 20
MOST = 500
_CLOSE = 10  # similar documents that a finding counts


@dataclass(frozen=True, eq=False)
class Audit:
    """The findings of an audit: first those that can be accepted, each group in descending order of gain.

    Example:
        >>> audit = load("model").audit(TextFile("X.trn.txt"), load_matrix("Y.trn.npz"))
        >>> finding = audit.of_kind("missing")[0]
        >>> print(audit.text_of(finding), finding.why)

    Args:
        findings: the findings.
        data: the documents that were audited.
        most: maximum number of findings of each kind.
    """

    findings: list[Finding]
    data: AuditData
    most: int = MOST

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def of_kind(self, kind: str) -> list[Finding]:
        """Return the findings of one kind.

        Args:
            kind: one of ``KINDS``.
        """
        return [one for one in self.findings if one.kind == kind]

    def text_of(self, finding: Finding) -> str:
        """Return the text of a finding's document on one line, or "" if there is no document or no text.

        Args:
            finding: the finding.
        """
        if finding.row is None or self.data.texts is None:
            return ""
        return " ".join(str(self.data.texts[finding.row]).split())

    def __str__(self) -> str:
        return f"{', '.join(map(self.counted, KINDS))} in {self.data.Y.shape[0]:,} documents"

    def counted(self, kind: str) -> str:
        """Return the number of findings of a kind as text, such as "the first 500 missing labels" if there may be more.

        Args:
            kind: one of ``KINDS``.
        """
        count = len(self.of_kind(kind))
        return f"{'the first ' if count == self.most else ''}{count:,} {NOUNS[kind][count != 1]}"


def audit_labels(data: AuditData, most: int = MOST) -> Audit:
    """Audit the labels of documents, and return at most ``most`` findings of each kind."""
    if not data.Y.nnz:
        raise InputError(
            "no document has a label that the model knows",
            expected="documents with labels of the model",
            fix="name the table's label column and label separator, or train a model on these labels",
        )
    if data.Y.shape[0] < FEWEST_DOCUMENTS:
        raise InputError(
            "there are too few documents to learn from",
            expected=f"at least {FEWEST_DOCUMENTS} documents with labels",
            received=f"{data.Y.shape[0]:,}",
        )
    evidence = gather_evidence(data)
    has, chance = estimate_errors(evidence, data.seed)
    suspected = ~evidence.has & ~evidence.random
    found = [
        *_of_pairs(data, evidence, MISSING, np.where(suspected, has, -1.0), most),
        *_of_pairs(data, evidence, WRONG, np.where(evidence.has, chance, -1.0), most),
    ]
    duplicates, rivals = different_duplicates(data, evidence.near), indistinguishable(data, evidence)
    for some in (duplicates, rivals, silent_names(data, evidence)):
        found += sorted(some, key=lambda one: (-one.gain, one.row or 0, one.label or 0))[:most]
    order = list(KINDS)

    def place(one: Finding) -> tuple[bool, float, int, int, int]:
        cannot_be_accepted = one.kind not in (MISSING, WRONG)
        return cannot_be_accepted, -one.gain, order.index(one.kind), one.row or 0, one.label or 0

    found.sort(key=place)
    return Audit(found, data, most)


def _of_pairs(data: AuditData, evidence: PairEvidence, kind: str, strength: np.ndarray, most: int) -> list[Finding]:
    """Return at most ``most`` findings of one kind, the strongest first. Each is about one label of one document."""
    best = np.argsort(-strength, kind="stable")[:most]
    pairs = evidence.pairs
    return [
        Finding(
            kind, int(pairs.rows[pair]), int(pairs.labels[pair]), None, float(strength[pair]), float(strength[pair]),
            _reasons(data, evidence, pair),
        )
        for pair in best[strength[best] > 0].tolist()
    ]  # fmt: skip


def _reasons(data: AuditData, found: PairEvidence, pair: int) -> str:
    """Describe the evidence for or against a label of a document in words."""
    row, label, Y = int(found.pairs.rows[pair]), int(found.pairs.labels[pair]), data.Y
    rank = round(float(np.exp(-found.column("rank")[pair])))
    parts = [f"prediction {rank} from the text"]
    if rank > FUSED_LABELS:
        parts = [f"not among the {FUSED_LABELS} predictions from the text"]
    if data.names is not None and found.named.nnz:
        precision = float(found.column("name")[pair])
        share = f" ({precision:.0%} of such texts have the label)"
        parts.append(f"its name is in the text{share}" if precision > 0 else "its name is not in the text")
    similar = found.near.indices[found.near.indptr[row] : found.near.indptr[row + 1]][:_CLOSE]
    if len(similar):
        count = sum(label in Y.indices[Y.indptr[one] : Y.indptr[one + 1]] for one in similar)
        parts.append(f"{count} of the {len(similar)} most similar documents have it")
    if (closest := found.companions.closest(row, label)) is not None:
        other, both, every = closest
        of_other = f"{both} of {every} other documents with {data.label_name(other)!r} have it"
        parts.append(of_other if both else "no other document with one of the other labels has it")
    return "; ".join(parts)

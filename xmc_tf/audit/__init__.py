"""Check the labels of documents, with evidence from other documents, and report findings for a person to review."""

from xmc_tf.audit.audit import MOST, Audit, audit_labels
from xmc_tf.audit.data import KINDS, AuditData, Finding, fold_scorer

__all__ = ["KINDS", "MOST", "Audit", "AuditData", "Finding", "audit_labels", "fold_scorer"]

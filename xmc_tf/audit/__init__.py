"""A check of the labels of documents: evidence from other documents, and findings for a person to review."""

from xmc_tf.audit.audit import MOST, Audit, audit_labels
from xmc_tf.audit.data import AuditData, fold_scorer
from xmc_tf.audit.finding import KINDS, Finding

__all__ = ["KINDS", "MOST", "Audit", "AuditData", "Finding", "audit_labels", "fold_scorer"]

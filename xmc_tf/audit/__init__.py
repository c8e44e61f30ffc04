"""A second look at the labels of documents: evidence from other documents, and findings for a person to check."""

from xmc_tf.audit.audit import MOST, Audit, audit_labels
from xmc_tf.audit.data import AuditData
from xmc_tf.audit.finding import KINDS, Finding
from xmc_tf.audit.scoring import fold_scorer

__all__ = ["KINDS", "MOST", "Audit", "AuditData", "Finding", "audit_labels", "fold_scorer"]

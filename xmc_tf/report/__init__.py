"""Evaluation reports: one HTML page for people, and the same figures as JSON and CSV.

Example:
    >>> from xmc_tf.report import ReportInputs, write_report
    >>> write_report(ReportInputs("Subjects", truth, predicted, names=names), "report")
"""

from xmc_tf.report.inputs import Curve, ReportInputs
from xmc_tf.report.report import Report, make_report
from xmc_tf.report.writing import write_report

__all__ = ["Curve", "Report", "ReportInputs", "make_report", "write_report"]

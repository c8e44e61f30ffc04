"""The sections of a report as data: scores, labels, examples, and the summary."""

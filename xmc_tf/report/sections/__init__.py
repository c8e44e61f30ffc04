"""The sections of a report as data: one file per section, each with one question that it answers."""

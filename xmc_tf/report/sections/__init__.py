"""The sections of a report as data. Each file answers one question."""

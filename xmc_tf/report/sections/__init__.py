"""The sections of a report as data. Each module answers one question."""

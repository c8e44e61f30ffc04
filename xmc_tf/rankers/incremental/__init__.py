"""Grow trained rankers: add documents and labels without training everything again."""

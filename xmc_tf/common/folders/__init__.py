"""Folders of results: kinds, locks, checksums, and atomic replacement."""

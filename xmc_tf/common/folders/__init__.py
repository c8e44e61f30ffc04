"""Output folders: their kinds, locks, checksums, and atomic replacement."""

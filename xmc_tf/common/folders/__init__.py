"""Folders of results: kinds, locks, checksums, and replacing one completely or not at all."""

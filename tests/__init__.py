"""Tests by package; ``tests.distributed`` starts several processes."""

"""Tests that start several processes, and the launcher they share."""

"""Tests of the audit of labels."""

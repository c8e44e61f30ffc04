"""Tests of the documentation: its examples run, and print what the pages show."""

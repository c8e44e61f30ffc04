"""Tests of what ``make setup`` runs."""

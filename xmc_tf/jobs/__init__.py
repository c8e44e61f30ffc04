"""Whole jobs on a table of texts and labels: training with a choice of settings, and prediction."""

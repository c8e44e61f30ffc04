"""Compiled loops: solvers for sixteen labels at a time, and the beam search."""

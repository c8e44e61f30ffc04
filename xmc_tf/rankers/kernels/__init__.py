"""Compiled kernels: solvers that train sixteen labels at a time, and the beam search."""

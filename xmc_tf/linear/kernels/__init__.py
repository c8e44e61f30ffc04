"""The compiled loops: solvers over sixteen labels at a time, and the beam search."""

"""Compiled functions from texts to TF-IDF, with the same bits as the graph (``tests/features/test_kernels.py``)."""

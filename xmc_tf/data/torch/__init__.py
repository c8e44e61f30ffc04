"""PyTorch's weight files, read without PyTorch and without running code."""

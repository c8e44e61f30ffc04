"""The format in which values travel between ranks: it cannot run code."""

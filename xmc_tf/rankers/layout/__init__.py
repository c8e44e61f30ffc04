"""The arrangement of weights for search, in memory and on disk."""

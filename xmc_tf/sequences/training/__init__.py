"""The training loop of sequence models."""

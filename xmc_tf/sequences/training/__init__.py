"""The training of sequence models."""

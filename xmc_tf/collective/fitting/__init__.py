"""Keras models over all ranks: compile, fit and save."""

"""Estimates of the memory, network traffic and duration of a training run."""

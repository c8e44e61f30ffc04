"""The ranks (processes) of a distributed run and their communication, without TensorFlow."""

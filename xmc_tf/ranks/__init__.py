"""Ranks, the processes of a distributed run: who they are, and how they exchange values. No TensorFlow."""

"""Export of a trained model as one SavedModel, from raw text to label names, and a client for it.

This package imports nothing itself, because the client runs on machines without TensorFlow.
"""

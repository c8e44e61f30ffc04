"""A trained model as one SavedModel, from raw text to label names, and what belongs to serving it.

Nothing is loaded here: the client runs on machines that have no TensorFlow.
"""

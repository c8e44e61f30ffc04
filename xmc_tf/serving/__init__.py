"""Export of a trained model as one SavedModel, from raw text to label names, and a client for TensorFlow Serving."""

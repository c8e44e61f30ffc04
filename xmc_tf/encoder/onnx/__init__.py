"""The encoder in ONNX Runtime: our own network as a graph of ONNX, and what computes it without TensorFlow."""

"""The encoder in ONNX Runtime: our own network as an ONNX graph, computed without TensorFlow."""

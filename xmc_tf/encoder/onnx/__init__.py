"""The encoder for ONNX Runtime: the same network as an ONNX graph, which runs without TensorFlow."""

"""The encoder for ONNX Runtime: the same network as an ONNX graph, which needs no TensorFlow."""

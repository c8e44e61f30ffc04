"""The network of an encoder in plain TensorFlow: configuration, weights, layers and the forward pass."""

"""Programs of TensorFlow 1: graphs, variable scopes and optimizers, over several ranks."""

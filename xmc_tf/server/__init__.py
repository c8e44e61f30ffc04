"""An HTTP server of a model folder, in the REST format of TensorFlow Serving, without TensorFlow Serving."""

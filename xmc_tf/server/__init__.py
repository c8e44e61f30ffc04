"""An HTTP server for models, in the REST format of TensorFlow Serving, without TensorFlow Serving."""

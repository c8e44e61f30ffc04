"""An HTTP server for models. It uses the REST format of TensorFlow Serving, but does not need TensorFlow Serving."""

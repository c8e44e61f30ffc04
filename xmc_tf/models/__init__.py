"""The public model classes, XTransformer and XRLinear."""

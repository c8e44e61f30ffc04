"""The models that users hold: XTransformer and XRLinear."""

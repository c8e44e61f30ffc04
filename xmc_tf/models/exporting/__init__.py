"""Exports of whole models: SavedModels, and models for ONNX Runtime."""

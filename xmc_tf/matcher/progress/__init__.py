"""Progress of fine-tuning: figures of the steps, TensorBoard, and learning curves."""

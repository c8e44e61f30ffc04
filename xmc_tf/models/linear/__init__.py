"""The linear model: its parts, folder, training and predictions."""

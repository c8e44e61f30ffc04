"""The linear model: its parts and predictions, growing, its folder and its training."""

"""Commands that change the labels of a trained model."""

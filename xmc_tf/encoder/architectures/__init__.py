"""The architectures of encoders, each in a file of its own."""

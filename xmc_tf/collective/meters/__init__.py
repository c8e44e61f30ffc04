"""The bytes that ranks send."""

"""The stall watch, which reports ranks that make no progress, and can end the run."""

"""The stall watch, which ends a run when a rank makes no progress."""

"""Experimental: teams of threads or ranks that solve one sub-problem, above the limits in ``linear/tasks.py``."""

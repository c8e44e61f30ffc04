"""Experimental: teams of threads or ranks that solve one sub-problem. Off by default."""

"""Ranks that wait for one another for too long: noticed, and said, over any of Horovod's controllers and over MPI."""

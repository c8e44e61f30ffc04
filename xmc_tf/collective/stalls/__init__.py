"""Ranks that wait for each other for too long: noticed, and said, over any of Horovod's controllers and over MPI."""

"""Authenticated TCP connections between the processes of a run: for the launcher, the stall watch and wide teams."""

"""Authenticated TCP connections between the processes of one run: the launcher, the stall watch, and wide teams."""

"""Authenticated TCP connections between the processes of a run: for the launcher and the stall watch."""

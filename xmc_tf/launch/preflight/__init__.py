"""The checks of all hosts before a run: a probe on each host, and a table of what differs."""

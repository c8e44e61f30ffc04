"""Process-wide code: command line, signals, records of runs, and terminal output."""

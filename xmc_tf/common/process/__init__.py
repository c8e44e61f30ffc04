"""The process: command line, signals, records of runs, terminal."""

"""Files: atomic writes, JSON, archives, and checks that no output overwrites an input."""

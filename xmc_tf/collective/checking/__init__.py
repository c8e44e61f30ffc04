"""Check the ranks of a run: which ranks there are, which do not respond, and how long messages take."""

"""Whether the ranks of a run can work together: who is where, who is silent, what the messages cost."""

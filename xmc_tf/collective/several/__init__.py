"""Several tables in one model: a planner places them, and all of them share each exchange."""

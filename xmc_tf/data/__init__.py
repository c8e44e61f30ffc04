"""What the user gives: texts, matrices and names, checked before any work begins."""

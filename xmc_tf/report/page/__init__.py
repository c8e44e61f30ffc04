"""The report as one HTML page without external resources; JavaScript only sorts and searches."""

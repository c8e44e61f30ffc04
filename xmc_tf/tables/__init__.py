"""Tables of documents: CSV and other files read into one SQLite database with labels and splits."""

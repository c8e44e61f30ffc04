"""Tables of documents: read CSV and other files into an SQLite database with texts, labels and splits."""

"""The store: where models and all other folders are saved, how they are replaced, and who checks their files."""

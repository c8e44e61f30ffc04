"""The words of a language: which languages texts are in, and the dictionary forms (lemmas) of their words."""

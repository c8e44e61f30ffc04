"""Matrices in .npz files: reading by memory map, and writing by many ranks."""

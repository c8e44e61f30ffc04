"""Code that all parts use: errors, progress, files, folders, processes, and the wire format."""

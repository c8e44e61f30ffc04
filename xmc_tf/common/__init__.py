"""Code that all packages use: errors, progress, files, folders, processes, and the wire format."""

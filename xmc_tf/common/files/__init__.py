"""Files: atomic writing, JSON, archives, and checks that outputs replace no inputs."""

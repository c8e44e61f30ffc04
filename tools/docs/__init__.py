"""The documentation site: pages made from the code, checks, and the build."""

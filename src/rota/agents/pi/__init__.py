"""The coding agent pi."""

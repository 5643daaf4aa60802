"""Where attempts run; one folder a place."""

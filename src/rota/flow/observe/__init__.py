"""Observe: read-only views of what is, what was, and why."""

"""Read-only views of what is, what was, and why."""

"""Read-only views of the current state, the history, and the reasons."""

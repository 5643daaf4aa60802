"""The keeper: a small program of its own that runs one attempt and outlives the daemon."""

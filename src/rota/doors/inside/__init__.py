"""The door for programs that work for a run: the desk, and the ways to it."""

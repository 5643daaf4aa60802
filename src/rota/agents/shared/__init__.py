"""What agents share: bounded lines, safe text, error classes and results."""

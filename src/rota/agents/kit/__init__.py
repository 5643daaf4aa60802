"""What agents share: safe text, bounded lines, the classes of errors, and the verdict."""

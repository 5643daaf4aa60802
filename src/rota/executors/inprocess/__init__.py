"""Python callables in this process."""

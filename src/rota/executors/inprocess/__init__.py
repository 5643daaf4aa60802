"""Python callables in this process or a child process."""

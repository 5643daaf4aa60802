"""Where attempts run; one folder an executor."""

"""The channel `log`, which writes messages to the log."""

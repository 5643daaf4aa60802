"""The log as a channel."""

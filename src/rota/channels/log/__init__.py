"""The log as a channel: every message becomes a line."""

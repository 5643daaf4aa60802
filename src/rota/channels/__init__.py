"""Ways out to people; one folder a channel."""

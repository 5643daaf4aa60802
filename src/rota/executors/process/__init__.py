"""Plain processes of the host, bounded and not isolated."""

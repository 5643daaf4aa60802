"""Plain processes of the host: limited, but not isolated."""

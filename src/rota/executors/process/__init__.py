"""A plain process of the host: bounded and ended for certain, but not walled in."""

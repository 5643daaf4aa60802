"""Whether: pure decisions over facts and a given now."""

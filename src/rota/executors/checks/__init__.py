"""How checks look at the world: at files without links, at addresses, for patterns that end."""

"""Pure decisions over facts and a given now."""

"""Pure, bounded arithmetic from a rule to instants."""

"""When: pure, bounded arithmetic from a rule to instants."""

"""From a schedule's rule to instants: pure functions with bounded cost."""

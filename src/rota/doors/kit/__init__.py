"""What doors share: the catalogue of commands, who asks, and how faults are told."""

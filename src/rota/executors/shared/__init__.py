"""What executors share: limits, mounts, and the programs that start programs."""

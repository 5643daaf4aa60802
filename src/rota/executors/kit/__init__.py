"""What executors share: the keeper, under which work outlives the daemon, and how to reach it."""

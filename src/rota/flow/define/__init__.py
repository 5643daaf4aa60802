"""Define: what people and programs ask for becomes tasks, schedules, runs and answers."""

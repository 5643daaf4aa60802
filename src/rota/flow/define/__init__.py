"""Define: requests of people and programs become tasks, schedules, runs and answers."""

"""Define: a wish becomes a task, a schedule, a run, a cancellation or an answer."""

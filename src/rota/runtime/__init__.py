"""What keeps the stages running: the loop, the worker, the supervisor."""

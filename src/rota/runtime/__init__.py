"""What runs the stages: the poller, the worker, the supervisor."""

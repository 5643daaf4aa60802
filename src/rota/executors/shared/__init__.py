"""Shared by executors: limits, mounts, and the programs that start programs."""

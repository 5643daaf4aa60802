"""Shared by agents: bounded lines, safe text, error classification and results."""

"""Channels: how messages reach people; one folder each."""

"""Channels: how messages reach people, one folder per channel."""

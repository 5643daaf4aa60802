"""Keepers under fire: attempts for tests, and random kills of all that holds one together."""

"""Protocols that plug-ins implement and tests replace."""

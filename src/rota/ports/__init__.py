"""Protocols for what plug-ins implement and tests replace."""

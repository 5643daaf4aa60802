"""Composition: settings, plug-ins, stores by address, the daemon and its log."""

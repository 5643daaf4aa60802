"""Executors: where programs run, one folder each."""

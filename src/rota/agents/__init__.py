"""Kinds of agents: which program to run, and how to read what it says."""

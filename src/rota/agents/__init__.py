"""Kinds of agents: which program to run and how to read its output."""

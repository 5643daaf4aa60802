"""Kinds of agents, one folder each: which program to run and how to read its output."""

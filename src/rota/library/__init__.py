"""Rota inside a Python program."""

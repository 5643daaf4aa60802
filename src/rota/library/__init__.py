"""Rota as a Python library."""

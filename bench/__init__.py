"""Rota measured beside its peers and beside the raw limits of the machine, in one run."""

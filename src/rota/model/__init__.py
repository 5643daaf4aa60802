"""Values: frozen dataclasses, and the states of a run."""

"""The nouns: frozen values, and the run's states and moves."""

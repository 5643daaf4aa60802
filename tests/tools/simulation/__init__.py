"""A whole Rota in one thread: virtual time, seeded chance, faults, and a judge of every commit."""

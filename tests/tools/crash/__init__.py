"""Real kills: the daemon as a process, hurt at chosen points, and what the outside saw of it."""

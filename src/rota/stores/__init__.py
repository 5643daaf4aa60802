"""Where the truth is kept: one store logic, in two dialects of SQL."""

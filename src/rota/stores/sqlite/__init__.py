"""SQLite: one file and one writer, or memory alone."""

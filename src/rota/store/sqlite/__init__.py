"""SQLite: a file with one writer, or memory."""

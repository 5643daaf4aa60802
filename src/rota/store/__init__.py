"""The store: operations by subject, and SQL for SQLite and PostgreSQL."""

"""One module a measure: it runs the sides in turn and yields rows for the table."""

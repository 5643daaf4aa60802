"""The ways in: each maps its own words to the same commands and views."""

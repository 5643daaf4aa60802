"""A program in a terminal that people can watch and type into; a view, not a wall."""

"""Programs in a terminal that people can watch and type into."""

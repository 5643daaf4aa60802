"""What keeps the verbs going: the one loop, the roles, supervision and signals."""

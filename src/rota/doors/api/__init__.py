"""The HTTP door: routes from the catalogue, a guard before them, a server around both."""

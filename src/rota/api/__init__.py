"""The HTTP API: routes from the catalogue of commands, middleware and a server."""

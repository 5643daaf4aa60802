"""A program in a container of docker or podman, reached by their command line."""

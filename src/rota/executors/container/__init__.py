"""Containers of docker or podman, through their command-line clients."""

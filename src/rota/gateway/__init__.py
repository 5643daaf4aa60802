"""The credential gateway: a process that holds the secrets and forwards requests to providers."""

"""The credential gateway: a process that has the secrets and forwards requests to providers."""

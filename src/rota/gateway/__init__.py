"""Room: the gateway, a process that has the keys and speaks to providers for programs without."""

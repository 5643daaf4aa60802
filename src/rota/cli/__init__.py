"""The command line: `rota <noun> <verb>`."""

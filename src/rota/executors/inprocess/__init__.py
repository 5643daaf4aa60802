"""Python callables inside Rota's own process: coroutines on the loop, functions in threads."""

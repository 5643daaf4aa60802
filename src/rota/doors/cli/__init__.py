"""The command line: `rota <noun> <verb>`, on the same commands and views as every other door."""

"""What is measured: Rota, each peer, and the bare database. Each side runs in a process of its own."""

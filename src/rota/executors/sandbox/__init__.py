"""Programs in bubblewrap: own files and processes, no network but single sockets."""

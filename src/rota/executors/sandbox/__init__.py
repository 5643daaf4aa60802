"""Programs in bubblewrap: own files, own processes, no network but one socket."""

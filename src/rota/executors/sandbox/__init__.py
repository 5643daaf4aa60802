"""A program behind the walls of bubblewrap: own files, own processes, no network but one socket."""

"""What lies in the state folder of an attempt that runs in a pane."""

SOCKET = "tmux.sock"
WORDS = "pane.words"
OUTPUT = "pane.out"
INPUT = "pane.in"
ENDED = "pane.ended"
SESSION = "main"
LONGEST_SOCKET = 107
"""Bytes of a socket's path that the kernel can hold."""

"""Any program: instructions on standard input or as arguments, text or JSON lines out."""

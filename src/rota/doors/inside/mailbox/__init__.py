"""The mailbox: a door of files for programs that Rota runs."""

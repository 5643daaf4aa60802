"""Mailboxes: folders of files through which programs and Rota exchange commands and replies."""

"""The interface for programs that work for a run: operations, MCP and mailboxes."""

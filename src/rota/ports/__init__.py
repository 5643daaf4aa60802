"""The sockets: what Rota needs from the outside, as small protocols."""

"""Execute: a lease becomes an attempt under a keeper, and what it says becomes events."""

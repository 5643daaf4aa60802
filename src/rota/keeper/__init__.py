"""The keeper: a small process that supervises one attempt and outlives the daemon."""

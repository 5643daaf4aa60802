"""The life of an attempt under a keeper, from its lease to its report."""

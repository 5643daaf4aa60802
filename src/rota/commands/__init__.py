"""Every operation that an interface offers, once, with its permission."""

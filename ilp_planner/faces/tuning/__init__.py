"""Short runs of plans, one after the other, kept in a folder."""

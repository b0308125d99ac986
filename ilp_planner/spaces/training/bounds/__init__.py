"""Lower bounds on the time and the memory of plans."""

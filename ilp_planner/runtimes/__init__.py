"""Training systems: which jobs each can run, and why not the others."""

"""Training systems: the jobs that each can run, and why not the others."""
